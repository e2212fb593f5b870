#!/usr/bin/env bash
# What surrounds the compiler: the canonical layout, the installed tree, the pages and completions
# that are written from the tables, the editors' grammars, and the library: every plan and cluster
# that ships is laid out, is right, and lowers.
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../lib/common.sh"

# ── format ────────────────────────────────────────────────────────────────────
cd "$here" || exit 1
for in in *.plan; do
    name=${in%.plan}
    "$planc" format "$in" >"$scratch/$name.got" 2>&1
    if [ -n "${UPDATE:-}" ]; then cp "$scratch/$name.got" "$name.want"; fi
    cmp -s "$name.want" "$scratch/$name.got" && ok "format.$name" ||
        fail "format.$name" "$(diff "$name.want" "$scratch/$name.got" | tr '\n' '|' | cut -c1-300)"
done
cd "$scratch" || exit 1
rm -f doc.*
why=
for in in "$top"/tests/*/*.plan "$top"/tests/*/*.test; do
    "$planc" format "$in" >once.plan 2>once.log
    status=$?
    [ $status -eq 0 ] || [ $status -eq 1 ] || why+="$in: status $status; "
    [ $status -eq 0 ] || continue
    "$planc" format once.plan >twice.plan 2>&1 && cmp -s once.plan twice.plan ||
        why+="$in changes twice; "
    [ "$(grep -o '#' "$in" | wc -l)" -eq "$(grep -o '#' once.plan | wc -l)" ] ||
        why+="$in loses a comment; "
done
[ -z "$why" ] && ok format.again || fail format.again "$why"
"$planc" dump "$top/plans/demo.plan" --after lower >plain.ir 2>&1
mkdir -p laid && sed -E 's/ +/ /g; s/ ?([{};=]) ?/\1/g' "$top/plans/demo.plan" >laid/demo.plan
"$planc" format --check laid/demo.plan 2>/dev/null &&
    fail format.check "a file without blanks is called canonical" || ok format.check
"$planc" format --write laid/demo.plan && "$planc" format --check laid/demo.plan &&
    ok format.write || fail format.write "what was written is not canonical"
(cd laid && "$planc" dump demo.plan --after lower) >laid.ir 2>&1
(cd "$top/plans" && "$planc" dump demo.plan --after lower) >plain.ir 2>&1
cmp -s plain.ir laid.ir && ok format.meaning ||
    fail format.meaning "$(diff plain.ir laid.ir | head -3 | tr '\n' '|')"

# ── the library ───────────────────────────────────────────────────────────────
"$planc" format --check "$top"/plans/*.plan "$top"/plans/*/*.plan 2>layout.log &&
    ok library.layout || fail library.layout "$(tail_of layout.log)"
for in in "$top"/plans/*.plan; do
    name=$(basename "$in" .plan)
    "$planc" check "$in" --json >"$name.json" 2>"$name.log"
    status=$?
    verdict=$(python3 -c \
        'import json, sys; p = json.load(open(sys.argv[1])); print(p.get("verdict") or p.get("errors"))' \
        "$name.json" 2>&1)
    # their token files need not be here
    awk '/warning: .*: [Nn]o such file/ { skip = 2; next } skip-- > 0 { next } 1' \
        "$name.log" >"$name.said"
    [ $status -eq 0 ] && { [ ! -s "$name.said" ] || [ "$verdict" = tight ]; } &&
        ok "library.check.$name" ||
        fail "library.check.$name" "status $status, $verdict $(tail_of "$name.log")"
    [ "$(wc -l <"$in")" -lt 40 ] || fail "library.length.$name" "$(wc -l <"$in") lines"
    point=()
    python3 \
        -c 'import json, sys; sys.exit(0 if json.load(open(sys.argv[1])).get("points") else 1)' \
        "$name.json" 2>/dev/null &&
        point=(--set mesh.fsdp=16 --set batch.local=1 --set activation_checkpoint.mode=full)
    "$planc" dump "$in" --after memory "${point[@]}" >"$name.ir" 2>&1 &&
        ok "library.dump.$name" || fail "library.dump.$name" "$(tail_of "$name.ir")"
done
# Every cluster carries a small model, with every key of its tables known.
for in in "$top"/plans/clusters/*.plan; do
    name=$(basename "$in" .plan)
    printf \
        'use "models/llama.plan"\nuse "clusters/%s.plan"\nplan "p" {\n    model llama { layers = 2;  hidden = 64;  heads = 4;  ffn = 128;  vocab = 256 }\n    cluster %s { }\n    mesh { fsdp = 4;  dp = auto }\n    batch { sequence = 64;  local = 1 }\n}\n' \
        "$name" "$name" >"on_$name.plan"
    "$planc" check "on_$name.plan" >"on_$name.log" 2>&1 && ok "library.cluster.$name" ||
        fail "library.cluster.$name" "$(tail_of "on_$name.log")"
    # the source is on the line or above it
    bare=$(awk '!/#/ && last !~ /^ *#/ { print FNR ":" $0 } { last = $0 }' "$in" |
        grep -E '[0-9](G|T|P|Gi|k|us|M)?(B|FLOP|bit)?(/s)?( |$)' | grep -E '= *[0-9]' |
        grep -vE 'link ')
    [ -z "$bare" ] && ok "library.sources.$name" ||
        fail "library.sources.$name" "a number without its source: $bare"
done

# ── every key ─────────────────────────────────────────────────────────────────
. "$here/keys.sh"

# ── the documents ─────────────────────────────────────────────────────────────
missing=$("$planc" keys --json | python3 -c '
import json, re, sys
text = open(sys.argv[1]).read()
words = set(re.findall(r"[a-z_0-9]+", " ".join(re.findall(r"`[^`]*`", text))))
keys = [(s["section"], k["name"]) for s in json.load(sys.stdin) for k in s["keys"]]
print(" ".join(section + "." + name for section, name in keys if name not in words))' \
    "$top/docs/language.md")
[ -z "$missing" ] && ok docs.keys || fail docs.keys "docs/language.md lacks $missing"
python3 - "$top/docs/tutorial.md" "$top/docs/language.md" "$top/README.md" <<'PY'
import re, sys
for path in sys.argv[1:]:
    for n, block in enumerate(re.findall(r"```\n(use .*?)```", open(path).read(), re.S)):
        open(f"doc.{path.split('/')[-1]}.{n}.plan", "w").write(block)
PY
for in in doc.*.plan; do
    "$planc" check "$in" >doc.log 2>&1 && "$planc" format --check "$in" >>doc.log 2>&1 &&
        ok "docs.${in#doc.}" || fail "docs.${in#doc.}" "$(tail_of doc.log)"
done
wrong=$(cd "$top" && "$planc" check plans/30b-a3b-512.plan >"$scratch/readme.log" 2>/dev/null
    grep -E '^ {4}(plans/| +[0-9.]+ GiB )' README.md | while IFS= read -r line; do
        grep -qxF "${line#    }" "$scratch/readme.log" || echo "$line"
    done)
[ -z "$wrong" ] && ok docs.readme || fail docs.readme "planc check does not print: $wrong"
rm -rf docs && mkdir docs && (cd docs && python3 "$here/docs.py" "$top" "$planc")

# ── install ───────────────────────────────────────────────────────────────────
rm -rf tree && mkdir tree
if make -s -C "$top" install BUILD="$BUILD" $([ "$BUILD" = build-sanitize ] &&
    echo SANITIZE=1) DESTDIR="$scratch/tree" PREFIX=/opt/planc >install.log 2>&1; then
    mv tree/opt/planc "tree/a place" # with a blank, and not where it was put
    there="$scratch/tree/a place"
    ok install
    mkdir -p elsewhere && cp on_cpu.plan elsewhere/
    (cd elsewhere && "$there/bin/planc" check on_cpu.plan) >installed.log 2>&1 &&
        ok installed.check || fail installed.check "$(tail_of installed.log)"
    (cd elsewhere && "$there/bin/planc" build on_cpu.plan -o out --device trace &&
        ./out/trainer --steps 1) >installed.log 2>&1 &&
        ok installed.build || fail installed.build "$(tail_of installed.log)"
    (cd elsewhere && "$there/bin/planc" build on_cpu.plan -o out.cpu) >installed.log 2>&1 &&
        ok installed.build_cpu || fail installed.build_cpu "$(tail_of installed.log)"
    (cd elsewhere && PLANC_NVRTC=/nowhere "$there/bin/planc" build on_cpu.plan -o out.cuda \
        --device cuda && [ -s out.cuda/cuda/machine.cuh ] &&
        [ -x out.cuda/trainer ]) >installed.log 2>&1 &&
        ok installed.build_cuda || fail installed.build_cuda "$(tail_of installed.log)"
else
    fail install "$(tail_of install.log)"
fi

# ── what is written from the tables ───────────────────────────────────────────
for what in man bash zsh; do
    "$planc" help $what >help.$what 2>&1 || fail help.$what "$(tail_of help.$what)"
done
if command -v man >/dev/null && command -v groff >/dev/null; then
    man -l --warnings help.man >man.txt 2>man.err && [ ! -s man.err ] && ok help.man ||
        fail help.man "$(tail_of man.err)"
else
    grep -q '^\.SH KEYS' help.man && ok help.man || fail help.man "no keys"
fi
complete_bash() { # WORD...: what the last of them may become
    bash \
        -c \
        'source help.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _planc 2>/dev/null; echo "${COMPREPLY[@]}"' \
        _ "$@"
}
[ "$(complete_bash planc simu)" = simulate ] &&
    [[ $(complete_bash planc check --set mesh.f) = mesh.fsdp= ]] &&
    [[ $(complete_bash planc build --dev) = --device ]] &&
    ok help.bash || fail help.bash "$(complete_bash planc check --set mesh.f)"
if command -v zsh >/dev/null; then
    zsh -n help.zsh 2>zsh.err && ok help.zsh || fail help.zsh "$(tail_of zsh.err)"
else
    skip help.zsh "no zsh"
fi
for command in $("$planc" help | sed -nE 's/^  ([a-z]+) .*/\1/p' | sort -u); do
    "$planc" help "$command" >help.log && grep -qE -- "--json|-o a path" help.log &&
        ok "help.$command" ||
        fail "help.$command" "$(tail_of help.log)"
done
# An option is given once: of two values one would be ignored. --set and calibrate's --from gather.
value_of() { case $1 in --device) echo cpu ;; --fusion) echo on ;; *) echo auto ;; esac; }
for command in $("$planc" help | sed -nE 's/^  ([a-z]+) .*/\1/p' | sort -u); do
    wrong=
    while read -r option value; do
        words=("$option")
        [ -n "$value" ] && words+=("$(value_of "$option")")
        [ "$option" = --set ] && words=(--set no.key=1)
        "$planc" "$command" "${words[@]}" "${words[@]}" >twice.log 2>twice.err
        status=$?
        case $command$option in
        *--set | calibrate--from) ! grep -q 'given twice' twice.err ;;
        *) [ $status = 3 ] && [ "$(cat twice.err)" = "planc: $option is given twice" ] ;;
        esac || wrong+=" $option: exit $status, $(tail_of twice.err)"
    done < <("$planc" help "$command" | sed -nE 's/^  (-[-a-z]+( [^ ]+)?).*/\1/p')
    [ -z "$wrong" ] && ok "twice.$command" || fail "twice.$command" "$wrong"
done

# ── editors ───────────────────────────────────────────────────────────────────
python3 - "$top/docs/editor/plan.tmLanguage.json" "$top/plans/clusters/b200.plan" <<'PY' \
    >grammar.log 2>&1 && ok grammar.textmate || fail grammar.textmate "$(tail_of grammar.log)"
import json, re, sys
grammar = json.load(open(sys.argv[1]))
text = open(sys.argv[2]).read()
for p in grammar["patterns"]:
    assert re.search(p.get("match") or p["begin"], text + "\nuse \"x\"\nx = not f(on)\n", re.M), p
PY
if command -v vim >/dev/null; then
    printf '# says\nuse "x"\nmesh { fsdp = 16GiB }\n' >coloured.plan
    vim -u NONE -es -N --cmd "set rtp^=$top/docs/editor/vim" -c 'syntax on' -c \
        'edit coloured.plan' -c 'set filetype=plan' -c 'redir! > vim.log' \
        -c \
        'for at in [[1,1],[2,1],[2,6],[3,1],[3,8],[3,15]] | echo synIDattr(synID(at[0], at[1], 1), "name") | endfor' \
        -c 'redir END' -c 'qa!' </dev/null >vim.err 2>&1
    got=$(tr '\n' ' ' <vim.log 2>/dev/null)
    [ "$got" = " planComment planSay planString planBlock planKey planNumber " ] ||
        [ "$got" = " planComment planSay planString planBlock planKey planNumber" ] &&
        ok grammar.vim || fail grammar.vim "'$got' $(tail_of vim.err)"
else
    skip grammar.vim "no vim"
fi
