/* leaky.c - ends with a block that nothing points to (leaky lost), or one that a static does (leaky
 * kept): what leaks.c must tell apart. */
#include <stdlib.h>
#include <string.h>

static char *volatile kept;

int main(int argc, char **argv)
{
    kept = malloc(42);
    if (!kept || argc != 2)
        return 1;
    memset(kept, 1, 42);
    if (strcmp(argv[1], "lost") == 0)
        kept = NULL;
    return 0;
}
