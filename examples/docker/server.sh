#!/bin/sh
# The server: makes the deployment once, hands each client its folder, in a volume, and serves.
set -e
[ -d site ] || murmuration deploy init site --host server --clients alice,bob --rounds 5
for name in alice bob; do
    cp -np "site/clients/$name/"* "handed-over/$name/"  # a policy that was changed there stays
done
site/server/superexec.sh &
site/server/register.sh &
exec site/server/superlink.sh
