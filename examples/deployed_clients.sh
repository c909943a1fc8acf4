#!/usr/bin/env bash
# Two people on machines of their own, rehearsed on this one: a SuperLink with TLS and registered keys, an
# agent and a SuperNode for each person, one run.
#
#     bash examples/deployed_clients.sh [FOLDER]
#
# Noise that hides one of two people hides both: this shows how it is done, and learns nothing.
set -euo pipefail
folder=${1:-runs/deployed}
link=${LINK_PORT:-8100} alice=${ALICE_PORT:-9094} bob=${BOB_PORT:-9095}
mkdir -p "$folder" && cd "$folder"
trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT

for name in alice bob; do
  for prompt in "A bonus came. What now?" "The heater broke." "Lunch at work?"; do
    echo "{\"user_id\": \"$name\", \"prompt\": \"$prompt\", \"chosen\": \"Spend little.\", \"rejected\": \"Spend it all.\"}"
  done > "$name.jsonl"
  chmod 600 "$name.jsonl"
done

murmuration deploy init site --host 127.0.0.1 --port "$link" --clients alice,bob --rounds 5
site/server/superlink.sh > superlink.log 2>&1 &
site/server/superexec.sh > superexec.log 2>&1 &
site/server/register.sh
murmuration deploy client site/clients/alice --data alice.jsonl --check # what would leave this machine
murmuration deploy client site/clients/alice --data alice.jsonl --port "$alice" > alice.log 2>&1 &
murmuration deploy client site/clients/bob --data bob.jsonl --port "$bob" > bob.log 2>&1 &
murmuration deploy doctor site --wait 300 # until both are there
murmuration deploy run site --out run --set test=murmuration.population:test
murmuration score run/model --prompt "A bonus came. What now?" --response "Spend little."
