" Vim syntax of planc's plans. Nothing here knows a key or a section: the language has three kinds of item, and a name's
" place says what it is, so a new key is coloured on the day it exists.
if exists("b:current_syntax")
  finish
endif

syntax match  planComment  "#.*$" contains=planTodo,@Spell
syntax keyword planTodo    contained TODO FIXME XXX NOTE
syntax region planString   start=+"+ skip=+\\.+ end=+"+ oneline contains=planEscape,planPlace
syntax match  planEscape   +\\["\\nt]+ contained
syntax match  planPlace    "{[A-Za-z_]\w*}" contained
" a number and its unit are one word: 180GiB, 400Gbit/s, 2.25PFLOP/s, 3e-4, 151_936
syntax match  planNumber   "\<\d[0-9_]*\(\.\d[0-9_]*\)\?\([eE][+-]\?\d\+\)\?\([A-Za-z]*\(B\|bit\|FLOP\)/s\>\|[A-Za-z_]\w*\)\?"
syntax keyword planOperator and or not
syntax match  planOperator "[-+*/%<>=!|?:]\|\.\."
syntax keyword planConstant on off auto
syntax match  planFunction "\<[A-Za-z_]\w*\ze("
" what an entry gives, what opens a block
syntax match  planKey      "\<[A-Za-z_]\w*\(\.[A-Za-z_]\w*\)*\ze\s*=[^=]"
syntax match  planBlock    "\%(^\|[;{}]\)\s*\zs[A-Za-z_]\w*\ze\%(\s[^=;#{}]*\)\={"
syntax match  planSay      "^\s*\zs\(use\|require\)\>"

highlight default link planComment  Comment
highlight default link planTodo     Todo
highlight default link planString   String
highlight default link planEscape   SpecialChar
highlight default link planPlace    Special
highlight default link planNumber   Number
highlight default link planOperator Operator
highlight default link planConstant Constant
highlight default link planFunction Function
highlight default link planKey      Identifier
highlight default link planBlock    Statement
highlight default link planSay      PreProc

setlocal commentstring=#\ %s
let b:current_syntax = "plan"
