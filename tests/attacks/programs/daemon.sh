#!/bin/sh
# An attack: code that the server ships leaves a daemon behind, forked twice, in a session of its own,
# deaf to SIGTERM and SIGHUP. It writes its beats to the file $1; then the "app" ends or waits ($2).
( setsid sh -c 'trap "" TERM HUP INT; while :; do echo beat >> "$0"; sleep 0.1; done' "$1" & )
exec sleep "${2:-0}"
