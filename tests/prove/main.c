/* Reads IR texts and says of each whether its laid-out schedule can be proved. A text from before
 * the memory pass is taken through the rest of the pipeline first. Status 0 when all are proved. */
#include "prove.h"
#include "passes/pipeline.h"

int main(int argc, char **argv)
{
    int bad = 0;
    for (int i = 1; i < argc; i++) {
        size_t n;
        const char *why = NULL, *bytes = file_read(argv[i], &n);
        struct graph *g = bytes ? ir_parse(bytes, n, &why) : NULL;
        if (!bytes) why = "cannot be read";
        if (g && g->level < LEVEL_MEMORY) g = pipeline_run(g, LEVEL_MEMORY);
        if (g) why = prove(g);
        printf("%s: %s\n", argv[i], why ? why : "proved");
        bad |= why != NULL;
    }
    return bad;
}
