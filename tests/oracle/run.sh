#!/usr/bin/env bash
# The reference case llama_tiny, trained on every mesh that fits a small machine, with accumulation, with and without
# activation checkpointing and fusion; each held against the float64 numbers by the checker that comes with them. The
# reference lies beside the repository; where it is absent these cases are skipped and tests/oracle_own stands alone.
. "$(dirname "$0")/../lib/common.sh"
. "$top/tests/lib/training.sh"
case=$oracle/llama_tiny
if [ ! -e "$case/expected.json" ]; then
    skip llama_tiny "there is no ../shared/oracle/llama_tiny"
    exit 0
fi
plan=$scratch/llama_tiny.plan
"$planc" import "$case" -o "$plan" >import.log 2>&1 || { fail import "$(tail_of import.log)"; exit 0; }
ok import
numbers recipe "$case" >settings

variants=()
for mesh in 1.1 2.1 1.2 4.1 2.2; do
    for accumulation in 1 2 4; do
        case $mesh.$accumulation in 4.1.4 | 2.2.4) continue ;; esac
        for mode in none full; do variants+=("$mesh.$accumulation.$mode.on"); done
    done
done
off=(1.1.1.none.off 1.1.1.full.off 2.1.1.none.off 2.1.2.full.off)
build_all "$plan" 8 settings "${variants[@]}" "${off[@]}"

for variant in "${variants[@]}" "${off[@]}"; do
    if ! why=$(variant_run "$variant"); then fail "$variant" "$why"; continue; fi
    python3 "$oracle/check.py" "$case/expected.json" "$variant.jsonl" --strict --final "$variant.safetensors" >"$variant.check" 2>&1 \
        && ok "$variant" || fail "$variant" "$(tail_of "$variant.check" 6)"
    why=$(numbers expect "$case" - --probe "$variant.probe") && ok "$variant.probe" || fail "$variant.probe" "$why"
done
for variant in "${variants[@]}"; do
    case $variant in *.none.on) variants_equal "none=full ${variant%.none.on}" "$variant" "${variant%.none.on}.full.on" ;; esac
done
for variant in "${off[@]}"; do variants_equal "fusion ${variant%.off}" "$variant" "${variant%.off}.on"; done
