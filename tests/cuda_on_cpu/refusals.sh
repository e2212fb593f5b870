# What a trainer says where something is missing: one line, from one rank, exit status 4 and nobody
# left. Sourced by run.sh. The trainer is one of two ranks.
rm -rf "${scratch:?}/refusals" && mkdir -p "$scratch/refusals/case" && cd "$scratch/refusals" ||
    return
"$scratch/truth" case steps=4 >truth.log 2>&1 && "$planc" import case -o case.plan >import.log 2>&1
mapfile -t settings < <(numbers recipe "$PWD/case")
cuda_build case.plan 8 2.1.1.none.on pair "${settings[@]}" --set run.timeout=100s --set \
    run.experts=cudnn
[ -x pair/trainer ] || fail refusals.build "$(tail_of pair.build)"

# refused NAME "WORDS" LIBRARIES [VARIABLE=VALUE...]
refused() {
    local name=$1 words=$2 path=$3 status lines
    shift 3
    at_once env LD_LIBRARY_PATH="$libraries/$path" "$@" timeout 60 mpirun -n 2 --oversubscribe \
        --bind-to none "$PWD/pair/trainer" --steps 1 >"$name.log" 2>&1 </dev/null
    status=$? lines=$(grep -c '^trainer:' "$name.log")
    if [ $status -eq 4 ] && [ "$lines" -eq 1 ] && grep -q "^trainer: .*$words" "$name.log"; then
        ok "refused.$name"
    else
        fail "refused.$name" "exit $status, $lines lines: $(grep -m 2 '^trainer:' "$name.log" |
            tr '\n' '|')"
    fi
}
while IFS='|' read name path setting words; do # without -r: \ joins lines
    # shellcheck disable=SC2086
    refused "$name" "$words" "$path" $setting
done <<'CASES'
no_driver|no-libcuda.so.1||no NVIDIA driver: libcuda.so.1 cannot be loaded
old_driver|lib|STANDIN_DRIVER=11080|CUDA 11.8, .* need 13.0 or later: update the driver
driver_without_a_function|old||has no cuGraphLaunch
no_device|lib|STANDIN_DEVICES=0|no GPU
one_device_for_two|lib|STANDIN_DEVICES=1|one rank per GPU
little_memory|lib|STANDIN_MEMORY=30000000|needs .* bytes; .* has .* free
old_device|lib|STANDIN_COMPUTE=7.0|compute capability 7.0; the kernels need
no_kernels_and_no_compiler|no-libnvrtc.so.13|STANDIN_COMPUTE=10.0|\
has no kernels for .* build with --arch sm_100a
no_nccl|no-libnccl.so.2||no NCCL: libnccl.so.2 cannot be loaded
no_cublaslt|no-libcublasLt.so.13||no cuBLASLt .* run.gemm = planc does without
cublaslt_refuses|lib|STANDIN_CUBLASLT_REFUSES=1|cuBLASLt does not start on this device
no_cudnn|no-libcudnn.so.9||\
no cuDNN 9: libcudnn.so.9 cannot be loaded.* run.experts = planc does without
old_cudnn|lib|STANDIN_CUDNN=91700|cuDNN 9.17.0 is too old, grouped products need 9.18
CASES
# Kernels for another device are made when the trainer starts, once, and found the next time.
for time in made found; do
    STANDIN_COMPUTE=10.0 cuda_run pair 2 "start.$time" --steps 1 >"start.$time.why" &&
        [ "$(grep -c 'kernels: compiled for sm_100a' "start.$time.log")" = $([ $time = made ] &&
        echo 1 || echo 0) ] &&
        ok "kernels.$time" ||
        fail "kernels.$time" "$(cat "start.$time.why") $(tail_of "start.$time.log")"
done
# No algorithm fits the workspace: our own products serve.
STANDIN_CUBLASLT_WORKSPACE=1000000000 cuda_run pair 2 large --steps 2 >large.why &&
    ok no_algorithm_fits || fail no_algorithm_fits "$(cat large.why)"
# That is said: once a shape, by one rank; and nothing is said where the library takes all.
once() { # NAME LOG WORDS TEST NUMBER: so many lines, no two the same
    [ "$(grep -c "^$3" "$2")" = "$(grep "^$3" "$2" | sort -u | wc -l)" ] &&
        [ "$(grep -cE "^$3[a-z, ]*: rank 0 on .*, GPU 0 \(.*no way for .*planc.s kernel" \
            "$2")" "${@:4}" ] &&
        ok "$1" || fail "$1" "$(grep "^$3" "$2" | head -n 3 | tr '\n' '|')"
}
once products_told large.log "dense products" -gt 5
once products_taken start.found.log "dense products" -eq 0
cd "$scratch" || exit 1
