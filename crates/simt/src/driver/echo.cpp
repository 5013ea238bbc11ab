// A library with a few of the driver's functions, one for each shape of argument list, that write down what they were given.
#include <cstdint>
#include <cstring>

#define FAKE_API extern "C" __attribute__((visibility("default")))

namespace {
uint64_t given[16];
// Passed by value between processes; CUipcMemHandle in the driver's header.
struct Handle {
    char bytes[64];
};

template <typename Value>
uint64_t bits(Value value) {
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}

int code = 0;

template <typename... Values>
int echo(Values... values) {
    const uint64_t all[] = {bits(values)..., 0};
    memset(given, 0, sizeof given);
    memcpy(given, all, sizeof all);
    return code;
}
}  // namespace

FAKE_API int cuCtxSynchronize(void) { return echo(); }
FAKE_API int cuProfilerStart(void) { return echo(); }
FAKE_API int cuInit(unsigned flags) { return echo(flags); }
FAKE_API int cuDeviceGet(int* device, int ordinal) { return echo(device, ordinal); }
FAKE_API int cuMemsetD8_v2(uint64_t address, unsigned char value, size_t count) { return echo(address, value, count); }
FAKE_API int cuMemsetD16_v2(uint64_t address, unsigned short value, size_t count) { return echo(address, value, count); }
FAKE_API int cuTexRefSetMipmapLevelBias(void* texture, float bias) { return echo(texture, bias); }
FAKE_API int cuTexRefSetMipmapLevelClamp(void* texture, float from, float to) { return echo(texture, from, to); }
FAKE_API int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags) {
    return echo(address, bytes, offset, handle, flags);
}
FAKE_API int cuIpcOpenMemHandle_v2(uint64_t* address, Handle handle, unsigned flags) {
    uint64_t first, last;
    memcpy(&first, handle.bytes, 8);
    memcpy(&last, handle.bytes + 56, 8);
    return echo(address, first, last, flags);
}
FAKE_API int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                            unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** params,
                            void** extra) {
    return echo(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, params, extra);
}

// What the last call was given, one 64-bit word an argument.
FAKE_API const uint64_t* echo_given(void) { return given; }
// What every call returns from now on.
FAKE_API void echo_return(int value) { code = value; }
