/* json_limits.c - how deep and how large a tree of JSON will be, from one look at its bytes. */
#include "http/json_limits.h"

/* Of a value or a key, and what an array or an object takes beyond that: measured on jansson. */
enum { VALUE_BYTES = 100, CONTAINER_BYTES = 160 };

/* The index behind a string that begins before i. */
static size_t skip_string(const char *text, size_t n, size_t i)
{
    while (i < n && text[i] != '"')
        i += text[i] == '\\' ? 2 : 1;
    return i < n ? i : n - 1;
}

srv_json_cost srv_json_measure(const char *text, size_t n_bytes)
{
    srv_json_cost cost = {.n_values = 1};
    size_t depth = 0, n_containers = 0;
    for (size_t i = 0; i < n_bytes; i++) {
        char c = text[i];
        if (c == '"')
            i = skip_string(text, n_bytes, i + 1);
        else if (c == '[' || c == '{') {
            depth++;
            cost.n_values++;
            n_containers++;
            cost.depth = depth > cost.depth ? depth : cost.depth;
        } else if (c == ']' || c == '}')
            depth -= depth > 0;
        else if (c == ',' || c == ':')
            cost.n_values++;
    }
    cost.n_bytes = n_bytes + VALUE_BYTES * cost.n_values + CONTAINER_BYTES * n_containers;
    return cost;
}
