#!/usr/bin/env bash
# Predictions against runs of this machine: calibrate, build every configuration, run each twice,
# and print tables of errors. Results are kept in build/predict; a second call runs only what is
# missing.
set -e
top=$(cd "$(dirname "$0")/../.." && pwd)
planc=$top/${BUILD:-build}/planc
folder=$top/${BUILD:-build}/predict
mkdir -p "$folder"
[ -e "$folder/machine.plan" ] || "$planc" calibrate -o "$folder/machine.plan"
python3 "$top/tests/bench/predict.py" build "$planc" "$folder" "$folder/machine.plan"
python3 "$top/tests/bench/predict.py" run "$folder"
python3 "$top/tests/bench/predict.py" report "$planc" "$folder" "$folder/machine.plan"
