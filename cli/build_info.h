/* build_info.h - what this build was made with. */
#ifndef BITNET_CLI_BUILD_INFO_H
#define BITNET_CLI_BUILD_INFO_H

#if defined(__clang__)
#define COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "gcc " __VERSION__
#else
#define COMPILER "unknown"
#endif

#endif
