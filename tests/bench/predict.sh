#!/usr/bin/env bash
# Predictions against runs of this machine: calibrate, build every configuration, run each twice,
# and print tables of errors. Results are kept in build/predict; a second call runs only what is
# missing. All of it takes eight minutes to half an hour; in pieces, so that a machine need not be
# quiet for so long:
#   predict.sh PART [SECONDS]     PART: calibrate, build, run (at most so long), report
# CALIBRATED names a file of `planc calibrate` to use instead. Folder: PREDICT, or build/predict.
set -e
top=$(cd "$(dirname "$0")/../.." && pwd)
planc=$top/${BUILD:-build}/planc
folder=${PREDICT:-$top/${BUILD:-build}/predict}
machine=${CALIBRATED:-$folder/machine.plan}
mkdir -p "$folder"
part() {
    case $1 in
    calibrate) [ -e "$machine" ] || "$planc" calibrate -o "$machine" ;;
    build) python3 "$top/tests/bench/predict.py" build "$planc" "$folder" ;;
    run) python3 "$top/tests/bench/predict.py" run "$folder" "${@:2}" ;;
    report) python3 "$top/tests/bench/predict.py" report "$planc" "$folder" "$machine" ;;
    *) echo "predict.sh: no part '$1': calibrate, build, run or report" >&2; exit 3 ;;
    esac
}
if [ $# -gt 0 ]; then
    part "$@"
else
    for one in calibrate build run report; do part $one; done
fi
