/* options.h - reading option structs of programs compiled against another version of bitnet.h. */
#ifndef BNET_OPTIONS_H
#define BNET_OPTIONS_H

#include "base/base.h"

/* Copies the caller's options over *dst, which holds the defaults and is `size` bytes. Every
 * options struct begins with a size_t struct_size. A shorter struct (older program) leaves the
 * missing fields at their defaults; a longer one (newer program) must be zero beyond what we know.
 * src NULL: all defaults. `name` stands in messages. */
bitnet_status bnet_options_copy(void *dst, size_t size, const void *src, const char *name,
                                bitnet_error *err);

/* The two shapes of complaint about a field: "session options: n_batch is 0, must be 1..65536". */
bitnet_status bnet_check_int(const char *owner, const char *field, int64_t value, int64_t lo,
                             int64_t hi, bitnet_error *err);
bitnet_status bnet_check_float(const char *owner, const char *field, double value, double lo,
                               double hi, bitnet_error *err);

#endif
