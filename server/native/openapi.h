/* openapi.h - server/openapi.json, which the build puts into the program (cmake/openapi.cmake). */
#ifndef SRV_OPENAPI_H
#define SRV_OPENAPI_H

#include <stddef.h>

extern const unsigned char srv_openapi[];
extern const size_t srv_n_openapi;

#endif
