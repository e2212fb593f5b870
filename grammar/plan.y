/* The grammar of the plan language: three kinds of item, one kind of expression, no keywords except
 * 'and', 'or' and 'not'. The tables of the checker give names their meaning, so a new key changes
 * nothing here. Every action is one constructor call. */
%require "3.8"
%define api.pure full
%define api.prefix {plan_}
%define api.location.type {struct span}
%define api.value.type {struct ast *}
%define parse.error custom
%define parse.lac full
%locations
%param {struct lex *lx}
%expect 0
%code requires { #include "text/lex.h" }
%code provides {
int plan_lex(PLAN_STYPE *, PLAN_LTYPE *, struct lex *);
void plan_error(PLAN_LTYPE *, struct lex *, const char *);
enum { RAW_NEWLINE = 1 }; /* of the scanner only: ast.c makes an END of it, or nothing */
}
%code {
#define YYLLOC_DEFAULT(C, R, N)                                                                               \
    ((C) = (N) ? (struct span){ lx->file, YYRHSLOC(R, 1).from, YYRHSLOC(R, N).to }                            \
               : (struct span){ lx->file, YYRHSLOC(R, 0).to, YYRHSLOC(R, 0).to })
#define LEAF(kind, at) ast_leaf(lx, kind, at)
#define OP(o, a, b) ast_binary(lx, o, a, b)
}
%token END_OF_FILE 0 "the end of the file"
%token NAME "a name" NUMBER "a number" STRING "a string" END "the end of the entry"
%token LBRACE "'{'" RBRACE "'}'" LPAR "'('" RPAR "')'" LBRACK "'['" RBRACK "']'"
%token ASSIGN "'='" BAR "'|'" COMMA "','" DOT "'.'" RANGE "'..'" QUERY "'?'" COLON "':'"
%token PLUS "'+'" MINUS "'-'" STAR "'*'" SLASH "'/'" PERCENT "'%'"
%token EQ "'=='" NE "'!='" LT "'<'" LE "'<='" GT "'>'" GE "'>='" AND "'and'" OR "'or'" NOT "'not'"
%right QUERY
%left OR
%left AND
%precedence NOT
%nonassoc EQ NE LT LE GT GE
%nonassoc RANGE
%left PLUS MINUS
%left STAR SLASH PERCENT
%precedence NEG
%%
file   : items                              { lx->root = $items; }
items  : %empty                             { $$ = ast_node(AST_ITEMS, @$); }
       | items item                         { $$ = ast_more($1, $2); }
       | items END                          { $$ = $1; }
       | items error END                    { $$ = $1; yyerrok; lex_recovered(lx); }
       | items error LBRACE items RBRACE    { $$ = $1; yyerrok; lex_recovered(lx); }
item   : head LBRACE items RBRACE           { $$ = ast_block($1, $3, @$); }
       | head END                           { $$ = ast_say($1); }
       | path ASSIGN value END              { $$ = ast_entry($1, $3); }
head   : NAME                               { $$ = ast_add(ast_node(AST_HEAD, @$), LEAF(AST_NAME, @1)); }
       | head label                         { $$ = ast_more($1, $2); }
label  : NAME                               { $$ = LEAF(AST_NAME, @1); }
       | STRING                             { $$ = LEAF(AST_STRING, @1); }
       | LPAR expr RPAR                     { $$ = $2; }
value  : expr
       | value BAR expr                     { $$ = ast_or($1, $3); }
expr   : NUMBER                             { $$ = LEAF(AST_NUMBER, @1); }
       | STRING                             { $$ = LEAF(AST_STRING, @1); }
       | path
       | NAME LPAR args RPAR                { $$ = ast_call(lx, @1, $3, @$); }
       | LBRACK args RBRACK                 { $$ = ast_list(lx, $2, @$); }
       | LPAR expr RPAR                     { $$ = $2; }
       | MINUS expr %prec NEG               { $$ = ast_unary(lx, "-", $2, @$); }
       | NOT expr                           { $$ = ast_unary(lx, "not", $2, @$); }
       | expr PLUS expr                     { $$ = OP("+", $1, $3); }
       | expr MINUS expr                    { $$ = OP("-", $1, $3); }
       | expr STAR expr                     { $$ = OP("*", $1, $3); }
       | expr SLASH expr                    { $$ = OP("/", $1, $3); }
       | expr PERCENT expr                  { $$ = OP("%", $1, $3); }
       | expr EQ expr                       { $$ = OP("==", $1, $3); }
       | expr NE expr                       { $$ = OP("!=", $1, $3); }
       | expr LT expr                       { $$ = OP("<", $1, $3); }
       | expr LE expr                       { $$ = OP("<=", $1, $3); }
       | expr GT expr                       { $$ = OP(">", $1, $3); }
       | expr GE expr                       { $$ = OP(">=", $1, $3); }
       | expr RANGE expr                    { $$ = OP("..", $1, $3); }
       | expr AND expr                      { $$ = OP("and", $1, $3); }
       | expr OR expr                       { $$ = OP("or", $1, $3); }
       | expr QUERY expr COLON expr %prec QUERY   { $$ = ast_choice(lx, $1, $3, $5); }
path   : NAME                               { $$ = LEAF(AST_NAME, @1); }
       | path DOT NAME                      { $$ = ast_path(lx, $1, @3); }
args   : %empty                             { $$ = ast_node(AST_LIST, @$); }
       | args1
       | args1 COMMA                        { $$ = $1; }
args1  : arg                                { $$ = ast_add(ast_node(AST_LIST, @$), $1); }
       | args1 COMMA arg                    { $$ = ast_add($1, $3); }
arg    : expr
       | NAME ASSIGN expr                   { $$ = ast_named(lx, @1, $3); }
%%
/* What could have come, in the words that a message needs; lex.c, which saw the tokens, says the
 * rest. */
static int yyreport_syntax_error(const yypcontext_t *context, struct lex *lx)
{
    yysymbol_kind_t list[YYNTOKENS];
    int n = yypcontext_expected_tokens(context, list, YYNTOKENS);
    struct expectation e = { 0 };
    for (int i = 0; i < n; i++) {
        e.value |= list[i] == YYSYMBOL_NUMBER;
        e.name |= list[i] == YYSYMBOL_NAME;
        e.string |= list[i] == YYSYMBOL_STRING;
        e.end |= list[i] == YYSYMBOL_END;
        e.brace |= list[i] == YYSYMBOL_LBRACE;
        e.assign |= list[i] == YYSYMBOL_ASSIGN;
        e.colon |= list[i] == YYSYMBOL_COLON;
        e.comma |= list[i] == YYSYMBOL_COMMA;
        e.closer |= list[i] == YYSYMBOL_RPAR || list[i] == YYSYMBOL_RBRACK;
        e.sign |= list[i] == YYSYMBOL_PLUS;
    }
    lex_unexpected(lx, &e);
    return 0;
}

/* Only what is not a syntax error comes here: the parser's stack is full. */
void plan_error(PLAN_LTYPE *at, struct lex *lx, const char *message)
{
    (void)message;
    lex_too_deep(lx, *at, "this file");
}
