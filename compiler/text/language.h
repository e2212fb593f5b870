/* What lexing asks about the words of the language: which sections and keys there are. text/ knows
 * how a plan is written, not which words it has. check/ has the tables (keys.def) and answers these
 * questions; the command line connects the two. Only messages about wrong text depend on the
 * answers, and where a missing brace belongs: correct text is read alike with and without them. */
#ifndef PLANC_LANGUAGE_H
#define PLANC_LANGUAGE_H

#include <stdbool.h>

/* A section is given by its path ("mesh", "cluster.device"), a key by its name in the section. */
struct language {
    bool (*is_section)(const char *path);
    bool (*has_label)(const char *section); /* `cluster NAME { }`: a name follows the section's */
    bool (*is_label)(const char *section, const char *name); /* `adamw` of `optimizer` */
    bool (*has_key)(const char *section, const char *name);  /* section NULL: any of them */
    bool (*wants_text)(const char *name); /* some section's key of this name is a string or files */
    const char *(*keys)(const char *section);        /* "fsdp, dp, reshard": those that work */
    const char *(*first_whole)(const char *section); /* the first key that counts; NULL: none */
    /* How files with weights are written, for a key that takes files; NULL: it takes none. */
    const char *(*weighted_files)(const char *name);
    /* The path of the key that an unknown name means; NULL: no guess. */
    const char *(*guess)(const char *name);
};

/* The answers in use. Before language_use: no word is known. */
extern const struct language *language;
void language_use(const struct language *answers);

#endif
