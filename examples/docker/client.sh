#!/bin/sh
# A client: waits until its folder is handed over, then runs the agent, and the SuperNode as `app`.
set -e
until [ -e handed-over/run.toml ]; do
    sleep 1
done
exec murmuration deploy client handed-over --data judgements.jsonl --state own/state --node-user app
