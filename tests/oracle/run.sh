#!/usr/bin/env bash
# The reference cases, one a family, trained on every mesh that fits a small machine, with
# accumulation, with every checkpointing mode, with and without fusion; each compared with the
# float64 numbers by the checker that comes with them. A mixture's balance loss spans what one rank
# sees at a time, so it has one truth for every local batch. The reference lies beside the
# repository; where it is absent these cases are skipped and tests/oracle_own stands alone. make
# test takes what tells most, less of it for families that share their machinery; LONG=1 every
# combination.
. "$(dirname "$0")/../lib/common.sh"
. "$top/tests/lib/training.sh"

# choose NAME: sets `variants` and `off`, the variants without fusion
choose() {
    local mesh accumulation mode
    variants=(1.1.1.none.on 1.1.1.full.on 1.1.1.selective.on 2.1.2.none.on 2.1.2.full.on \
        1.2.1.selective.on 4.1.1.full.on 2.2.1.none.on)
    off=(1.1.1.none.off)
    case $1 in llama | qwen3moe)
        variants+=(1.1.4.none.on 2.1.1.full.on 2.1.2.selective.on 1.2.2.none.on 4.1.1.none.on \
            4.1.2.selective.on 2.2.2.full.on)
        off+=(2.1.2.full.off) ;;
    esac
    # sums of more than two replicas, added to what is there
    [ "$1" != llama ] || variants+=(1.4.2.none.on)
    # slow there
    if [ "$BUILD" = build-sanitize ]; then
        variants=(1.1.1.none.on 1.1.1.full.on 2.1.2.selective.on) off=(1.1.1.none.off)
    fi
    [ -n "${LONG:-}" ] || return
    variants=()
    off=(1.1.1.none.off 1.1.1.full.off 1.1.1.selective.off 2.1.1.none.off 2.1.2.full.off)
    for mesh in 1.1 2.1 1.2 4.1 2.2 1.4 2.4 1.2all 2.2all 1.4all 2.4all; do
        for accumulation in 1 2 4; do
            case $mesh.$accumulation in 4.1.4 | 2.2*.4 | 1.4*.4 | 2.4*.[24]) continue ;; esac
            for mode in none full selective; do variants+=("$mesh.$accumulation.$mode.on"); done
        done
    done
}

for name in llama gpt2 qwen3 qwen3moe; do
    case=$oracle/${name}_tiny
    if [ ! -e "$case/expected.json" ]; then
        skip "$name" "there is no ../shared/oracle/${name}_tiny"
        continue
    fi
    rm -rf "${scratch:?}/$name"
    mkdir -p "$scratch/$name" && cd "$scratch/$name" || exit 1
    plan=$scratch/$name/case.plan
    "$planc" import "$case" -o "$plan" >import.log 2>&1 ||
        { fail "$name.import" "$(tail_of import.log)"; continue; }
    ok "$name.import"
    numbers recipe "$case" >settings
    choose "$name"
    build_all "$plan" 8 settings "${variants[@]}" "${off[@]}"
    for variant in "${variants[@]}" "${off[@]}"; do
        if ! why=$(variant_run "$variant"); then fail "$name.$variant" "$why"; continue; fi
        truth=() together=$(samples_together 8 "$variant")
        [ "$name" = qwen3moe ] && truth=(--tol-aux 1e-5) && [ "$together" -ne 8 ] &&
            truth+=(--variant "aux_microbatch_$together")
        python3 "$oracle/check.py" "$case/expected.json" "$variant.jsonl" --strict --final \
            "$variant.safetensors" "${truth[@]}" >"$variant.check" 2>&1 \
            && ok "$name.$variant" || fail "$name.$variant" "$(tail_of "$variant.check" 6)"
        # step 0's gradients are told for the whole step only
        [ "$name" = qwen3moe ] && [ "$together" -ne 8 ] && continue
        why=$(numbers expect "$case" - --probe "$variant.probe") && ok "$name.$variant.probe" ||
            fail "$name.$variant.probe" "$why"
    done
    # No mode changes a bit, and neither does fusion.
    for variant in "${variants[@]}"; do
        case $variant in *.none.on) ;; *) continue ;; esac
        for mode in full selective; do
            other=${variant%.none.on}.$mode.on
            case " ${variants[*]} " in *" $other "*) variants_equal \
                "$name.none=$mode ${variant%.none.on}" "$variant" "$other" ;; esac
        done
    done
    for variant in "${off[@]}"; do
        variants_equal "$name.fusion ${variant%.off}" "$variant" "${variant%.off}.on"
    done
done
