/* convert_driver.c - calls bnet_convert for tests that drive it from outside: convert_driver IN OUT
 * [--type T]
 * [--embedding T] [--tokenizer F] [--rss]. Exit code: the status. With --rss it prints the peak
 * resident KiB. */
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "convert/convert.h"

static void print_log(void *user, bitnet_log_level level, const char *module, const char *message)
{
    (void)user;
    fprintf(stderr, "%d %s: %s\n", (int)level, module, message);
}

static int usage(void)
{
    fprintf(stderr,
            "usage: convert_driver IN OUT [--type T] [--embedding T] [--tokenizer F] [--rss]\n");
    return BITNET_ARGUMENT;
}

/* Reads one option; false: unknown or without its value. */
static bool take_option(bnet_convert_options *o, const char *name, const char *value)
{
    bnet_type *type = strcmp(name, "--type") == 0 ? &o->weight_type : &o->embedding_type;
    if (!value)
        return false;
    if (strcmp(name, "--tokenizer") == 0) {
        o->tokenizer = value;
        return true;
    }
    const bnet_type_info *info = bnet_type_by_name(value);
    if (!info || (strcmp(name, "--type") != 0 && strcmp(name, "--embedding") != 0))
        return false;
    *type = info->type;
    return true;
}

int main(int argc, char **argv)
{
    bnet_convert_options o;
    bitnet_error err = {0};
    bool rss = argc > 3 && strcmp(argv[argc - 1], "--rss") == 0;
    bnet_convert_options_init(&o);
    o.log.fn = print_log;
    if (argc < 3)
        return usage();
    for (int i = 3; i < argc - rss; i += 2)
        if (!take_option(&o, argv[i], i + 1 < argc ? argv[i + 1] : NULL))
            return usage();
    bitnet_status st = bnet_convert(argv[1], argv[2], &o, &err);
    if (st != BITNET_OK)
        fprintf(stderr, "%s\n", err.message);
    struct rusage usage_now;
    if (rss && getrusage(RUSAGE_SELF, &usage_now) == 0)
        printf("%ld\n", usage_now.ru_maxrss);
    return (int)st;
}
