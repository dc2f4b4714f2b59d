# Builds for aarch64 on a machine of another kind.
set(arch aarch64)
include(${CMAKE_CURRENT_LIST_DIR}/cross.cmake)
