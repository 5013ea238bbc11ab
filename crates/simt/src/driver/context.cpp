// Initialisation, devices, contexts, errors; counting of calls, and the faults that tests ask for.
#include "fake.hpp"

#include <cstdio>
#include <cstring>
#include <map>

namespace fake {

std::recursive_mutex lock;
int failure = SUCCESS;
Settings settings;

namespace {
struct Fault {
    uint64_t calls_left;
    int code;
};
std::map<std::string, uint64_t> calls;
std::map<std::string, Fault> faults;
bool initialised = false;
int retained = 0;
// One context a device; its address is its handle.
char contexts[16];
thread_local void* current = nullptr;
}  // namespace

int entered(const char* call) {
    calls[call] += 1;
    auto fault = faults.find(call);
    if (fault == faults.end()) return SUCCESS;
    if (--fault->second.calls_left > 0) return SUCCESS;
    int code = fault->second.code;
    faults.erase(fault);
    return code;
}

int entered_with_context(const char* call) {
    if (int code = entered(call)) return code;
    if (!initialised) return NOT_INITIALIZED;
    return current != nullptr ? failure : INVALID_CONTEXT;
}

int attribute(int name) {
    switch (name) {
        case 1: return 1024;         // MAX_THREADS_PER_BLOCK
        case 2: return 1024;         // MAX_BLOCK_DIM_X
        case 3: return 1024;         // MAX_BLOCK_DIM_Y
        case 4: return 64;           // MAX_BLOCK_DIM_Z
        case 5: return 2147483647;   // MAX_GRID_DIM_X
        case 6: return 65535;        // MAX_GRID_DIM_Y
        case 7: return 65535;        // MAX_GRID_DIM_Z
        case 8: return 49152;        // MAX_SHARED_MEMORY_PER_BLOCK
        case 10: return 32;          // WARP_SIZE
        case 16: return 4;           // MULTIPROCESSOR_COUNT
        case 75: return static_cast<int>(settings.compute_capability / 10);
        case 76: return static_cast<int>(settings.compute_capability % 10);
        case 95: return 1;           // COOPERATIVE_LAUNCH
        case 97: return 166912;      // MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        case 102: return static_cast<int>(settings.virtual_memory);
        default: return 0;
    }
}

namespace {
bool is_device(int device) { return device >= 0 && static_cast<uint64_t>(device) < settings.devices; }

const char* name_of(int code) {
    switch (code) {
        case SUCCESS: return "CUDA_SUCCESS";
        case INVALID_VALUE: return "CUDA_ERROR_INVALID_VALUE";
        case OUT_OF_MEMORY: return "CUDA_ERROR_OUT_OF_MEMORY";
        case NOT_INITIALIZED: return "CUDA_ERROR_NOT_INITIALIZED";
        case 46: return "CUDA_ERROR_DEVICE_UNAVAILABLE";
        case NO_DEVICE: return "CUDA_ERROR_NO_DEVICE";
        case INVALID_DEVICE: return "CUDA_ERROR_INVALID_DEVICE";
        case INVALID_CONTEXT: return "CUDA_ERROR_INVALID_CONTEXT";
        case 205: return "CUDA_ERROR_MAP_FAILED";
        case NO_BINARY_FOR_GPU: return "CUDA_ERROR_NO_BINARY_FOR_GPU";
        case INVALID_PTX: return "CUDA_ERROR_INVALID_PTX";
        case UNSUPPORTED_PTX_VERSION: return "CUDA_ERROR_UNSUPPORTED_PTX_VERSION";
        case INVALID_HANDLE: return "CUDA_ERROR_INVALID_HANDLE";
        case ILLEGAL_STATE: return "CUDA_ERROR_ILLEGAL_STATE";
        case NOT_FOUND: return "CUDA_ERROR_NOT_FOUND";
        case NOT_READY: return "CUDA_ERROR_NOT_READY";
        case 700: return "CUDA_ERROR_ILLEGAL_ADDRESS";
        case 719: return "CUDA_ERROR_LAUNCH_FAILED";
        case COOPERATIVE_LAUNCH_TOO_LARGE: return "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE";
        case STREAM_CAPTURE_UNSUPPORTED: return "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED";
        case STREAM_CAPTURE_INVALIDATED: return "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED";
        case STREAM_CAPTURE_IMPLICIT: return "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT";
        case STREAM_CAPTURE_WRONG_THREAD: return "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD";
        case GRAPH_EXEC_UPDATE_FAILURE: return "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE";
        default: return nullptr;
    }
}
}  // namespace
}  // namespace fake

using namespace fake;

FAKE_API int cuInit(unsigned flags) {
    FAKE_ENTER(cuInit);
    if (flags != 0) return INVALID_VALUE;
    if (settings.devices == 0) return NO_DEVICE;
    initialised = true;
    return SUCCESS;
}

FAKE_API int cuDriverGetVersion(int* version) {
    FAKE_ENTER(cuDriverGetVersion);
    *version = static_cast<int>(settings.driver_version);
    return SUCCESS;
}

FAKE_API int cuDeviceGetCount(int* count) {
    FAKE_ENTER(cuDeviceGetCount);
    if (!initialised) return NOT_INITIALIZED;
    *count = static_cast<int>(settings.devices);
    return SUCCESS;
}

FAKE_API int cuDeviceGet(int* device, int ordinal) {
    FAKE_ENTER(cuDeviceGet);
    if (!initialised) return NOT_INITIALIZED;
    if (!is_device(ordinal)) return INVALID_DEVICE;
    *device = ordinal;
    return SUCCESS;
}

FAKE_API int cuDeviceGetName(char* name, int length, int device) {
    FAKE_ENTER(cuDeviceGetName);
    if (!is_device(device)) return INVALID_DEVICE;
    snprintf(name, static_cast<size_t>(length), "Fake GPU %d", device);
    return SUCCESS;
}

FAKE_API int cuDeviceGetUuid(unsigned char* uuid, int device) {
    FAKE_ENTER(cuDeviceGetUuid);
    if (!is_device(device)) return INVALID_DEVICE;
    for (int i = 0; i < 16; ++i) uuid[i] = static_cast<unsigned char>(i * 16 + device);
    return SUCCESS;
}

FAKE_API int cuDeviceGetPCIBusId(char* text, int length, int device) {
    FAKE_ENTER(cuDeviceGetPCIBusId);
    if (!is_device(device)) return INVALID_DEVICE;
    snprintf(text, static_cast<size_t>(length), "0000:%02X:00.0", device + 1);
    return SUCCESS;
}

FAKE_API int cuDeviceTotalMem_v2(size_t* bytes, int device) {
    FAKE_ENTER(cuDeviceTotalMem_v2);
    if (!is_device(device)) return INVALID_DEVICE;
    *bytes = settings.total_bytes;
    return SUCCESS;
}

FAKE_API int cuDeviceGetAttribute(int* value, int name, int device) {
    FAKE_ENTER(cuDeviceGetAttribute);
    if (!is_device(device)) return INVALID_DEVICE;
    *value = attribute(name);
    return SUCCESS;
}

FAKE_API int cuDevicePrimaryCtxRetain(void** context, int device) {
    FAKE_ENTER(cuDevicePrimaryCtxRetain);
    if (!is_device(device)) return INVALID_DEVICE;
    retained += 1;
    *context = &contexts[device];
    return SUCCESS;
}

FAKE_API int cuDevicePrimaryCtxRelease_v2(int device) {
    FAKE_ENTER(cuDevicePrimaryCtxRelease_v2);
    if (!is_device(device) || retained == 0) return INVALID_CONTEXT;
    retained -= 1;
    return SUCCESS;
}

FAKE_API int cuCtxSetCurrent(void* context) {
    FAKE_ENTER(cuCtxSetCurrent);
    current = context;
    return SUCCESS;
}

FAKE_API int cuCtxGetCurrent(void** context) {
    FAKE_ENTER(cuCtxGetCurrent);
    *context = current;
    return SUCCESS;
}

FAKE_API int cuCtxSynchronize(void) {
    FAKE_ENTER_UNCAPTURED(cuCtxSynchronize);
    drain();
    return failure;
}

FAKE_API int cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
    FAKE_ENTER_CONTEXT(cuMemGetInfo_v2);
    *total_bytes = settings.total_bytes;
    *free_bytes = settings.total_bytes - settings.held_by_others_bytes - physical_bytes();
    return SUCCESS;
}

FAKE_API int cuGetErrorName(int error, const char** text) {
    FAKE_ENTER(cuGetErrorName);
    *text = name_of(error);
    return *text != nullptr ? SUCCESS : INVALID_VALUE;
}

FAKE_API int cuGetErrorString(int error, const char** text) {
    FAKE_ENTER(cuGetErrorString);
    *text = name_of(error) != nullptr ? "as the fake driver was told" : nullptr;
    return *text != nullptr ? SUCCESS : INVALID_VALUE;
}

// What tests call.

FAKE_API void fake_reset(void) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    reset_graphs();
    reset_streams();
    reset_modules();
    reset_memory();
    calls.clear();
    faults.clear();
    settings = Settings();
    initialised = false;
    failure = SUCCESS;
    current = nullptr;
}

// Whether the setting exists.
FAKE_API int fake_set(const char* name, uint64_t value) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    const std::map<std::string, uint64_t*> known = {
        {"devices", &settings.devices},
        {"driver_version", &settings.driver_version},
        {"total_bytes", &settings.total_bytes},
        {"compute_capability", &settings.compute_capability},
        {"virtual_memory", &settings.virtual_memory},
        {"held_by_others_bytes", &settings.held_by_others_bytes},
        {"resident_threads", &settings.resident_threads},
        {"empty_kernels", &settings.empty_kernels},
        {"deferred", &settings.deferred},
        {"cublaslt_version", &settings.cublaslt_version},
    };
    auto setting = known.find(name);
    if (setting == known.end()) return 0;
    *setting->second = value;
    return 1;
}

// The `nth` call of `call` from now on, counted from 1, does nothing and returns `code`.
FAKE_API void fake_fail(const char* call, uint64_t nth, int code) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    faults[call] = Fault{nth, code};
}

FAKE_API uint64_t fake_calls(const char* call) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    return calls[call];
}

FAKE_API uint64_t fake_calls_total(void) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    uint64_t total = 0;
    for (const auto& call : calls) total += call.second;
    return total;
}

FAKE_API uint64_t fake_physical_bytes(void) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    return physical_bytes();
}

FAKE_API uint64_t fake_live_objects(void) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    return memory_objects() + stream_objects() + module_objects() + graph_objects();
}

FAKE_API int fake_contexts_retained(void) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    return retained;
}
