// PyTorch's side of the callbacks: calls them as `CUDAPluggableAllocator` does, and catches what its callers would.
#include <cstddef>
#include <cstring>
#include <exception>

namespace {
template <typename Call>
int caught(char* what, size_t size, Call call) {
    what[0] = 0;
    try {
        call();
        return 0;
    } catch (const std::exception& error) {
        std::strncpy(what, error.what(), size - 1);
        what[size - 1] = 0;
        return 1;
    }
}
}  // namespace

extern "C" int play_malloc(void* function, size_t bytes, int device, void* stream, void** block, char* what, size_t size) {
    auto malloc = reinterpret_cast<void* (*)(size_t, int, void*)>(function);
    return caught(what, size, [&] { *block = malloc(bytes, device, stream); });
}

extern "C" int play_without_arguments(void* function, char* what, size_t size) {
    auto call = reinterpret_cast<void (*)()>(function);
    return caught(what, size, [&] { call(); });
}
