# Every key does something or is refused by name; none is taken and ignored. Sourced by run.sh, in
# its scratch folder.
cat >keys.plan <<'PLAN'
use "models/llama.plan"
use "clusters/cpu.plan"

plan "keys" {
    model llama { layers = 4;  hidden = 64;  heads = 4;  ffn = 96;  vocab = 256 }
    cluster cpu { device { memory = 4GiB } }
    mesh { fsdp = 2;  dp = 2 }
    activation_checkpoint { mode = selective }
    batch { sequence = 64;  local = 2;  global = 16 }
    schedule wsd { warmup = 2;  steps = 20;  decay = 5 }
    data { train = "t.bin";  format = bytes }
}
PLAN
mkdir -p w
# [OPTION…]: what a plan comes to, in a few bytes; the trainer's sources only where there is time
snapshot() {
    "$planc" check keys.plan "$@" >keys.log 2>&1
    local status=$?
    [ $status -le 2 ] && [ $status -ne 1 ] ||
        { echo "refused $(grep -m1 error: keys.log)"; return; }
    grep -v 'checked in' keys.log | md5sum
    [ -n "${LONG:-}" ] || return
    rm -rf keys.out
    "$planc" build keys.plan -o keys.out --device trace "$@" >keys.build 2>&1 &&
        cat keys.out/{schedule,program,kernels}.c keys.out/plan.json | md5sum ||
        tail -n 1 keys.build
}
lacking=$("$planc" keys --json | python3 -c '
import json, sys
lines = [line for line in open(sys.argv[1]) if line.strip() and line[0] != "#"]
given = {line.split()[1].split("=")[0] for line in lines}
sections = [s for s in json.load(sys.stdin) if s["section"] != "optimizer.weights"]
keys = {s["section"] + "." + k["name"] for s in sections for k in s["keys"]}
print(" ".join(sorted(keys ^ given)))' "$top/tests/tools/keys.txt")
[ -z "$lacking" ] && ok keys.all ||
    fail keys.all "tests/tools/keys.txt and the tables differ: $lacking"
plain=$(snapshot) why=
while read -r verdict setting reason; do
    case $verdict in '#'* | '') continue ;; esac
    got=$(snapshot --set "$setting")
    case $verdict in
        refused) [[ $got == refused*"$reason"* ]] || why+="$setting: $got; " ;;
        tells) [ "$got" = "$plain" ] || why+="$setting: $got; " ;;
        does) [[ $got != refused* ]] && { [ -z "${LONG:-}" ] || [ "$got" != "$plain" ]; } ||
            why+="$setting does nothing: $got; " ;;
        any) [[ $got == refused*"${setting%%=*}"* ]] ||
            { [[ $got != refused* ]] && { [ -z "${LONG:-}" ] || [ "$got" != "$plain" ]; }; } ||
            why+="$setting: $got; " ;;
    esac
done <"$top/tests/tools/keys.txt"
[ -z "$why" ] && ok keys.do_or_refuse || fail keys.do_or_refuse "$why"

# Words of other trainers: each line of words.txt is a word and what the answer must hold.
why=
while IFS='|' read -r word want; do
    "$planc" keys "$word" >word.log 2>&1 && grep -qF -- "$want" word.log ||
        why+="$word: $(head -n 1 word.log); "
done < <(grep -v '^#' "$here/words.txt")
"$planc" keys -- --lr >word.log 2>&1 && grep -q 'peak learning rate' word.log || why+="-- --lr; "
"$planc" keys --nonsense >word.log 2>&1 && why+="--nonsense is answered; "
"$planc" keys --jsn >word.log 2>&1 && why+="--jsn is answered; "
[ -z "$why" ] && ok keys.words || fail keys.words "$why"
