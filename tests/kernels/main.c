/* The tests of generated kernels. Arguments: which, a folder to write in, the repository's root. */
#include "machine.h"

#include <string.h>

int ops_test(const char *directory, const char *root);
int fusion_test(const char *directory, const char *root);
int update_test(const char *directory, const char *root);
int broadcast_test(const char *directory, const char *root);

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*run)(const char *, const char *);
    } row[] = {{"ops", ops_test},
               {"fusion", fusion_test},
               {"update", update_test},
               {"broadcast", broadcast_test}};
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (size_t i = 0; argc == 4 && i < COUNT_OF(row); i++)
        if (!strcmp(argv[1], row[i].name)) return row[i].run(argv[2], argv[3]);
    return 3;
}
