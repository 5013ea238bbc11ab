// A fake cuBLASLt: products computed on the CPU as the library's documentation defines them, column by column, in the order of the fake driver's streams. It holds callers to what they promised when they asked for
// an algorithm (alignments, workspace, shapes), which the library takes on trust.
#include "fake.hpp"

#include <cstring>
#include <dlfcn.h>
#include <set>
#include <utility>
#include <vector>

namespace {

// Codes of cublas_api.h.
enum Status : int { OK = 0, NOT_INITIALIZED = 1, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
// cudaDataType_t and cublasComputeType_t.
enum Type : int { R_32F = 0, R_16F = 2, R_16BF = 14 };
enum Compute : int { COMPUTE_32F = 68, COMPUTE_32F_FAST_TF32 = 77 };

struct Operation {
    int compute, scale;
    int32_t transposes[2] = {0, 0};
    uint32_t epilogue = 1;  // DEFAULT
    const float* bias = nullptr;
};

struct Layout {
    int type;
    uint64_t rows, columns;
    int64_t stride;

    bool operator==(const Layout& other) const {
        return type == other.type && rows == other.rows && columns == other.columns && stride == other.stride;
    }
};

struct Preference {
    uint64_t workspace_bytes = 0;
    uint32_t alignments_bytes[4] = {256, 256, 256, 256};
};

// In the 64 bytes that callers keep of an algorithm.
struct Algorithm {
    uint64_t magic, workspace_bytes, rows, columns, inner;
    uint32_t alignments_bytes[4];
};
static_assert(sizeof(Algorithm) <= 64, "an algorithm is 64 bytes");
constexpr uint64_t MAGIC = 0x616c676f72697468;

struct Result {
    uint64_t algorithm[8];
    size_t workspace_bytes;
    int state;
    float waves_count;
    int reserved[4];
};
static_assert(sizeof(Result) == 96, "a result is 96 bytes");

std::set<void*> handles, operations, layouts, preferences;

// A function of the fake driver, which this process has under the driver's name.
template <typename F>
F* of_driver(const char* name) {
    static void* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
    return reinterpret_cast<F*>(dlsym(driver, name));
}

int entered(const char* call) { return of_driver<int(const char*)>("fake_library_entered")(call); }

float of_bits(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

float of_half(uint16_t half) {
    uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31, fraction = half & 1023;
    if (exponent == 0) return (sign ? -1.0f : 1.0f) * static_cast<float>(fraction) * 0x1p-24f;
    if (exponent == 31) return of_bits(sign | 0x7f800000u | fraction << 13);
    return of_bits(sign | (exponent + 112) << 23 | fraction << 13);
}

// To the nearest of 11 significant bits, halves away from zero.
float to_tf32(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return of_bits((bits + 0x1000u) & ~0x1fffu);
}

float element(const void* matrix, const Layout& layout, uint64_t row, uint64_t column) {
    uint64_t at = row + column * static_cast<uint64_t>(layout.stride);
    if (layout.type == R_32F) return static_cast<const float*>(matrix)[at];
    uint16_t bits = static_cast<const uint16_t*>(matrix)[at];
    return layout.type == R_16F ? of_half(bits) : of_bits(static_cast<uint32_t>(bits) << 16);
}

// Rows and columns of a matrix as the operation takes it.
std::pair<uint64_t, uint64_t> taken(const Layout& layout, bool transposed) {
    return transposed ? std::make_pair(layout.columns, layout.rows) : std::make_pair(layout.rows, layout.columns);
}

// What the documentation's table of supported types has of these, and shapes that fit.
bool is_possible(const Operation& of, const Layout& a, const Layout& b, const Layout& c, const Layout& d) {
    auto [rows, inner] = taken(a, of.transposes[0] == 1);
    auto [other_inner, columns] = taken(b, of.transposes[1] == 1);
    bool fits = inner == other_inner && d.rows == rows && d.columns == columns && c == d;
    bool strides = true;
    for (const Layout* layout : {&a, &b, &d}) strides &= layout->stride >= static_cast<int64_t>(layout->rows) && layout->rows > 0;
    bool types = of.scale == R_32F && a.type == b.type && d.type == R_32F &&
                 of.compute == (a.type == R_32F ? COMPUTE_32F_FAST_TF32 : COMPUTE_32F);
    bool epilogue = of.epilogue == 1 || (of.epilogue == 4 && of.bias != nullptr);
    return fits && strides && types && epilogue;
}

// Summed from the end, so that sums are rounded otherwise than ours.
void multiply(const Operation& of, const Layout (&layouts)[3], const void* a, const void* b, float* d) {
    const auto& [of_a, of_b, of_d] = layouts;
    uint64_t inner = taken(of_a, of.transposes[0] == 1).second;
    bool rounds = of.compute == COMPUTE_32F_FAST_TF32;
    for (uint64_t column = 0; column < of_d.columns; ++column) {
        for (uint64_t row = 0; row < of_d.rows; ++row) {
            float sum = 0.0f;
            for (uint64_t l = inner; l-- > 0;) {
                float x = of.transposes[0] == 1 ? element(a, of_a, l, row) : element(a, of_a, row, l);
                float y = of.transposes[1] == 1 ? element(b, of_b, column, l) : element(b, of_b, l, column);
                sum += rounds ? to_tf32(x) * to_tf32(y) : x * y;
            }
            d[row + column * static_cast<uint64_t>(of_d.stride)] = sum + (of.epilogue == 4 ? of.bias[row] : 0.0f);
        }
    }
}

template <typename T>
int create(std::set<void*>& all, void** made, const T& value) {
    *made = new T(value);
    all.insert(*made);
    return OK;
}

template <typename T>
int destroy(std::set<void*>& all, void* made) {
    if (all.erase(made) == 0) return INVALID_VALUE;
    delete static_cast<T*>(made);
    return OK;
}

template <typename T>
int assign(T& field, const void* value, size_t bytes) {
    if (value == nullptr || bytes != sizeof field) return INVALID_VALUE;
    memcpy(&field, value, bytes);
    return OK;
}

}  // namespace

#define ENTER(call) \
    if (int code = entered(#call)) return code

FAKE_API size_t cublasLtGetVersion() { return of_driver<uint64_t()>("fake_cublaslt_version")(); }

FAKE_API const char* cublasLtGetStatusName(int status) {
    switch (status) {
        case OK: return "CUBLAS_STATUS_SUCCESS";
        case NOT_INITIALIZED: return "CUBLAS_STATUS_NOT_INITIALIZED";
        case INVALID_VALUE: return "CUBLAS_STATUS_INVALID_VALUE";
        case EXECUTION_FAILED: return "CUBLAS_STATUS_EXECUTION_FAILED";
        case NOT_SUPPORTED: return "CUBLAS_STATUS_NOT_SUPPORTED";
        default: return "CUBLAS_STATUS_UNKNOWN";
    }
}

FAKE_API const char* cublasLtGetStatusString(int) { return "in the words of the fake library"; }

FAKE_API int cublasLtCreate(void** handle) {
    ENTER(cublasLtCreate);
    return create(handles, handle, 0);
}

FAKE_API int cublasLtDestroy(void* handle) {
    ENTER(cublasLtDestroy);
    return destroy<int>(handles, handle);
}

FAKE_API int cublasLtMatmulDescCreate(void** operation, int compute, int scale) {
    ENTER(cublasLtMatmulDescCreate);
    return create(operations, operation, Operation{compute, scale});
}

FAKE_API int cublasLtMatmulDescDestroy(void* operation) { return destroy<Operation>(operations, operation); }

FAKE_API int cublasLtMatmulDescSetAttribute(void* operation, int attribute, const void* value, size_t bytes) {
    ENTER(cublasLtMatmulDescSetAttribute);
    if (operations.count(operation) == 0) return INVALID_VALUE;
    auto of = static_cast<Operation*>(operation);
    switch (attribute) {
        case 3: return assign(of->transposes[0], value, bytes);  // TRANSA
        case 4: return assign(of->transposes[1], value, bytes);  // TRANSB
        case 7: return assign(of->epilogue, value, bytes);       // EPILOGUE
        case 8: return assign(of->bias, value, bytes);           // BIAS_POINTER
        default: return INVALID_VALUE;
    }
}

FAKE_API int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns, int64_t stride) {
    ENTER(cublasLtMatrixLayoutCreate);
    return create(layouts, layout, Layout{type, rows, columns, stride});
}

FAKE_API int cublasLtMatrixLayoutDestroy(void* layout) { return destroy<Layout>(layouts, layout); }

FAKE_API int cublasLtMatmulPreferenceCreate(void** preference) {
    ENTER(cublasLtMatmulPreferenceCreate);
    return create(preferences, preference, Preference{});
}

FAKE_API int cublasLtMatmulPreferenceDestroy(void* preference) { return destroy<Preference>(preferences, preference); }

FAKE_API int cublasLtMatmulPreferenceSetAttribute(void* preference, int attribute, const void* value, size_t bytes) {
    ENTER(cublasLtMatmulPreferenceSetAttribute);
    if (preferences.count(preference) == 0) return INVALID_VALUE;
    auto of = static_cast<Preference*>(preference);
    if (attribute == 1) return assign(of->workspace_bytes, value, bytes);
    if (attribute >= 5 && attribute <= 8) return assign(of->alignments_bytes[attribute - 5], value, bytes);
    return INVALID_VALUE;
}

// Takes half of the workspace that it may.
FAKE_API int cublasLtMatmulAlgoGetHeuristic(void* handle, void* operation, void* a, void* b, void* c, void* d, void* preference,
                                            int wanted, Result* results, int* count) {
    ENTER(cublasLtMatmulAlgoGetHeuristic);
    if (handles.count(handle) == 0 || operations.count(operation) == 0 || preferences.count(preference) == 0 || wanted < 1) return INVALID_VALUE;
    for (void* layout : {a, b, c, d}) if (layouts.count(layout) == 0) return INVALID_VALUE;
    auto of = static_cast<Operation*>(operation);
    auto of_a = static_cast<Layout*>(a), of_d = static_cast<Layout*>(d);
    *count = 0;
    if (!is_possible(*of, *of_a, *static_cast<Layout*>(b), *static_cast<Layout*>(c), *of_d)) return NOT_SUPPORTED;
    auto wishes = static_cast<Preference*>(preference);
    Algorithm algorithm = {MAGIC, wishes->workspace_bytes / 2, of_d->rows, of_d->columns, taken(*of_a, of->transposes[0] == 1).second, {}};
    memcpy(algorithm.alignments_bytes, wishes->alignments_bytes, sizeof algorithm.alignments_bytes);
    *results = Result{};
    memcpy(results->algorithm, &algorithm, sizeof algorithm);
    results->workspace_bytes = algorithm.workspace_bytes;
    *count = 1;
    return OK;
}

FAKE_API int cublasLtMatmul(void* handle, void* operation, const float* alpha, const void* a, void* of_a, const void* b, void* of_b,
                            const float* beta, const void* c, void* of_c, void* d, void* of_d, const uint64_t* algorithm, void* workspace,
                            size_t workspace_bytes, void* stream) {
    ENTER(cublasLtMatmul);
    if (handles.count(handle) == 0 || operations.count(operation) == 0) return INVALID_VALUE;
    for (void* layout : {of_a, of_b, of_c, of_d}) if (layouts.count(layout) == 0) return INVALID_VALUE;
    Operation of = *static_cast<Operation*>(operation);
    Layout known[3] = {*static_cast<Layout*>(of_a), *static_cast<Layout*>(of_b), *static_cast<Layout*>(of_d)};
    if (!is_possible(of, known[0], known[1], *static_cast<Layout*>(of_c), known[2])) return NOT_SUPPORTED;
    Algorithm by;
    memcpy(&by, algorithm, sizeof by);
    uint64_t inner = taken(known[0], of.transposes[0] == 1).second;
    if (by.magic != MAGIC || by.rows != known[2].rows || by.columns != known[2].columns || by.inner != inner) return INVALID_VALUE;
    const void* matrices[4] = {a, b, c, d};
    for (int i = 0; i < 4; ++i) if (reinterpret_cast<uintptr_t>(matrices[i]) % by.alignments_bytes[i] != 0) return INVALID_VALUE;
    if (workspace_bytes < by.workspace_bytes || reinterpret_cast<uintptr_t>(workspace) % 256 != 0) return INVALID_VALUE;
    if (*alpha != 1.0f || *beta != 0.0f) return NOT_SUPPORTED;
    std::function<void()> run = [=] {
        // As a library that uses all that it was promised.
        memset(workspace, 0xff, workspace_bytes);
        multiply(of, known, a, b, static_cast<float*>(d));
    };
    int code = of_driver<int(void*, const char*, const std::function<void()>*)>("fake_library_submit")(stream, "cublasLtMatmul", &run);
    return code == 0 ? OK : EXECUTION_FAILED;
}

// Handles and descriptors that exist.
FAKE_API uint64_t fake_cublaslt_objects() {
    return handles.size() + operations.size() + layouts.size() + preferences.size();
}
