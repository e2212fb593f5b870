#!/usr/bin/env bash
# Training runs that others published, against check and simulate of the same run:
#   published.sh [FILE.csv]     default: published.csv beside this script; any file of its columns
# Prints the tables of docs/prediction.md. Exit status 1 when a bound of theirs is missed.
here=$(cd "$(dirname "$0")" && pwd)
exec python3 "$here/published.py" "$here/../../${BUILD:-build}/planc" "${1:-$here/published.csv}"
