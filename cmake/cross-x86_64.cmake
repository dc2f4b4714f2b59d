# Builds for x86_64 on a machine of another kind.
set(arch x86_64)
include(${CMAKE_CURRENT_LIST_DIR}/cross.cmake)
