/* compile FOLDER ARCH FILE.cu LOG: compiles a text as planc does (compiler/commands/nvrtc.c, its
 * very options), for tests that compile what they put together themselves. Status 1: the text does
 * not compile, and LOG says why; 77: there is no NVRTC. Alone it says which NVRTC there is. */
#include "commands/nvrtc.h"

#include <string.h>

int main(int argc, char **argv)
{
    const char *missing = nvrtc_open();
    size_t n;
    if (missing) return printf("%s\n", missing), 77;
    if (argc == 1) return printf("%s\n", nvrtc_identity()), 0;
    if (argc != 5) return 2;
    const char *text = file_read(argv[3], &n);
    struct text cubin = {0}, log = {0};
    if (!text) return 2;
    bool fine = nvrtc_compile(text, argv[1], argv[2], &cubin, &log);
    if (!file_write(argv[4], log.bytes ? log.bytes : "", log.length)) return 2;
    return fine ? 0 : 1;
}
