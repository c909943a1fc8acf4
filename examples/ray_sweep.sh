#!/usr/bin/env bash
# Which strategy? Whole runs side by side on a Ray cluster: the one at RAY_ADDRESS, else one on this machine.
#
#     bash examples/ray_sweep.sh [FOLDER] [more options of `murmuration compare`]
#
# Every run has the same promise. If the sweep is interrupted, the same command continues it.
set -euo pipefail
murmuration compare --runtime ray --strategies uls,aup,group --epsilons 1,3 --seeds 2 --delta 1e-5 \
  --rounds 50 --cohort 500 --out "${1:-runs/sweep}" "${@:2}"
