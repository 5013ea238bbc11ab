// Modules and launches. An image is PTX text, of which its version and target are read, and of the entries their signatures, the most threads of a block and the shared memory; what an
// entry does is the function `simt_<entry>` of an object that the test has named, or `simt_cooperative_<entry>`.
#include "fake.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <utility>
#include <vector>

namespace fake {
namespace {

using Run = int (*)(const unsigned grid[3], const unsigned block[3], size_t dynamic_shared, void** params);

struct Entry {
    std::vector<size_t> parameter_bytes;
    unsigned threads_max = 1024;
    unsigned shared_bytes = 0;
};

struct Function {
    std::string name;
    Run run, run_cooperative;
    Entry entry;
    int dynamic_shared_max = 49152;
};

struct Module {
    std::map<std::string, Entry> entries;
    std::map<std::string, std::unique_ptr<Function>> functions;
};

std::set<Module*> modules;
std::set<Function*> functions;
std::vector<void*> objects;

// Microseconds that kernels take, by their names, and what those took together that ran since the first was set. Others take none.
std::map<std::string, double> times_us;
double passed_us = 0.0;
// How often kernels ran, by their names.
std::map<std::string, uint64_t> runs;

// Of all kernels that ran since somebody asked last.
uint64_t digest = 0;

// FNV-1a.
void note(const void* bytes, size_t count) {
    for (size_t i = 0; i < count; ++i) digest = (digest ^ static_cast<const unsigned char*>(bytes)[i]) * 0x100000001b3u;
}

// The size of `.param .u32 name` or `.param .align 8 .b8 name[24]`.
size_t size_of(const std::string& parameter) {
    std::istringstream words(parameter);
    size_t bytes = 0;
    for (std::string word; words >> word;) {
        if (word == ".align") words >> word;
        else if (bytes == 0 && word.size() > 2 && word[0] == '.' && strchr("busf", word[1]) && isdigit(word[2]))
            bytes = std::stoul(word.substr(2)) / 8;
    }
    auto open = parameter.find('[');
    return open == std::string::npos ? bytes : bytes * std::stoul(parameter.substr(open + 1));
}

// The number behind `directive`, 10 · 7 + 0 for `.version 7.0` and 80 for `.target sm_80`; 0 where there is none.
unsigned number_behind(const std::string& ptx, const char* directive) {
    size_t at = ptx.find(directive);
    unsigned number = 0;
    if (at == std::string::npos) return 0;
    for (at += strlen(directive); at < ptx.size() && (isdigit(ptx[at]) || ptx[at] == '.'); ++at)
        if (isdigit(ptx[at])) number = 10 * number + static_cast<unsigned>(ptx[at] - '0');
    return number;
}

// The code with which a driver refuses `ptx`: CUDA 11.m takes versions up to 7.m of the language, CUDA 12.m up to 8.m.
int refusal(const std::string& ptx) {
    uint64_t version = number_behind(ptx, ".version "), target = number_behind(ptx, ".target sm_");
    uint64_t driver = settings.driver_version;
    if (version == 0) return INVALID_PTX;
    if (version > 10 * (driver / 1000 - 4) + driver % 1000 / 10) return UNSUPPORTED_PTX_VERSION;
    return target > settings.compute_capability ? NO_BINARY_FOR_GPU : SUCCESS;
}

// What stands behind an entry's parameters up to the next one: `.maxntid 128, 1, 1` and `.shared .align 16 .b8 name[1280];`.
Entry entry_of(std::vector<size_t> parameter_bytes, const std::string& text) {
    Entry entry{std::move(parameter_bytes)};
    size_t bound = text.find(".maxntid");
    if (bound != std::string::npos) {
        std::istringstream list(text.substr(bound + 8, text.find('\n', bound) - bound - 8));
        unsigned threads = 1;
        for (std::string size; std::getline(list, size, ',');) threads *= static_cast<unsigned>(std::stoul(size));
        entry.threads_max = threads;
    }
    for (size_t at = text.find(".shared .align"); at != std::string::npos; at = text.find(".shared .align", at + 1)) {
        std::string variable = text.substr(at, text.find(';', at) - at);
        auto open = variable.find('[');
        if (open != std::string::npos) entry.shared_bytes += static_cast<unsigned>(std::stoul(variable.substr(open + 1)));
    }
    return entry;
}

std::map<std::string, Entry> entries_of(const std::string& ptx) {
    std::map<std::string, Entry> found;
    for (size_t at = ptx.find(".entry"); at != std::string::npos; at = ptx.find(".entry", at + 1)) {
        size_t open = ptx.find('(', at), close = ptx.find(')', at);
        if (open == std::string::npos || close == std::string::npos) break;
        std::istringstream name_text(ptx.substr(at + 6, open - at - 6)), list(ptx.substr(open + 1, close - open - 1));
        std::string name;
        name_text >> name;
        std::vector<size_t> sizes;
        for (std::string parameter; std::getline(list, parameter, ',');)
            if (size_t bytes = size_of(parameter)) sizes.push_back(bytes);
        size_t next = ptx.find(".entry", close);
        found[name] = entry_of(sizes, ptx.substr(close, next == std::string::npos ? next : next - close));
    }
    return found;
}

Run find(const std::string& symbol) {
    Run found = nullptr;
    for (void* object : objects) {
        if (void* address = dlsym(object, symbol.c_str())) found = reinterpret_cast<Run>(address);
    }
    return found;
}

// The kernel of which no object is known, where such do nothing.
int nothing(const unsigned*, const unsigned*, size_t, void**) { return 0; }

struct Shape {
    unsigned blocks[3], threads[3], shared_bytes;
};

// Blocks of so many threads that the GPU holds at once.
uint64_t resident_blocks(uint64_t threads) {
    return threads == 0 ? 0 : settings.resident_threads / threads * static_cast<uint64_t>(attribute(16));
}

uint64_t volume(const unsigned size[3]) { return static_cast<uint64_t>(size[0]) * size[1] * size[2]; }

int submit_kernel(const Function& function, Run run, const Shape& shape, void* stream, void** params) {
    if (shape.shared_bytes > static_cast<unsigned>(function.dynamic_shared_max)) return INVALID_VALUE;
    if (volume(shape.threads) > function.entry.threads_max) return INVALID_VALUE;
    if (volume(shape.blocks) * volume(shape.threads) == 0) return INVALID_VALUE;
    // The values are taken now: the caller's are gone when a deferred kernel runs.
    std::vector<std::vector<char>> values;
    for (size_t i = 0; i < function.entry.parameter_bytes.size(); ++i) {
        auto start = static_cast<const char*>(params[i]);
        values.emplace_back(start, start + function.entry.parameter_bytes[i]);
    }
    std::ostringstream kind;
    kind << "kernel " << &function << (run == function.run ? "" : ", cooperative");
    return submit(stream, {kind.str(), [=, name = function.name] {
        let_pass(name);
        note(&run, sizeof run);
        note(&shape, sizeof shape);
        auto given = values;
        std::vector<void*> pointers;
        for (auto& value : given) {
            note(value.data(), value.size());
            pointers.push_back(value.data());
        }
        if (run(shape.blocks, shape.threads, shape.shared_bytes, pointers.data()) != 0) failure = LAUNCH_FAILED;
    }});
}

// Objects that the environment names, for a program that cannot be told otherwise.
struct FromEnvironment {
    FromEnvironment() {
        const char* paths = getenv("FAKE_CUDA_KERNELS");
        std::istringstream list(paths == nullptr ? "" : paths);
        for (std::string path; std::getline(list, path, ':');)
            if (void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) objects.push_back(object);
    }
} from_environment;

void forget(Module* module) {
    for (auto& function : module->functions) functions.erase(function.second.get());
    modules.erase(module);
    delete module;
}

}  // namespace

void let_pass(const std::string& kernel) {
    runs[kernel] += 1;
    auto time = times_us.find(kernel);
    if (time != times_us.end()) passed_us += time->second;
}

double clock_us() {
    using Clock = std::chrono::steady_clock;
    if (!times_us.empty()) return passed_us;
    return std::chrono::duration<double, std::micro>(Clock::now().time_since_epoch()).count();
}

uint64_t module_objects() { return modules.size(); }

void reset_modules() {
    while (!modules.empty()) forget(*modules.begin());
    for (void* object : objects) dlclose(object);
    objects.clear();
    times_us.clear();
    runs.clear();
    passed_us = 0.0;
}
}  // namespace fake

using namespace fake;

FAKE_API int cuModuleLoadDataEx(void** module, const void* image, unsigned count, int* options, void** values) {
    FAKE_ENTER_UNCAPTURED(cuModuleLoadDataEx);
    std::string ptx(static_cast<const char*>(image));
    if (int code = refusal(ptx)) {
        // ERROR_LOG_BUFFER, and behind it ERROR_LOG_BUFFER_SIZE_BYTES.
        if (count == 2 && options[0] == 5 && options[1] == 6)
            snprintf(static_cast<char*>(values[0]), reinterpret_cast<size_t>(values[1]), "ptxas fatal   : as the fake driver\nreads it");
        return code;
    }
    auto made = new Module();
    made->entries = entries_of(ptx);
    modules.insert(made);
    *module = made;
    return SUCCESS;
}

FAKE_API int cuModuleUnload(void* module) {
    FAKE_ENTER_UNCAPTURED(cuModuleUnload);
    if (modules.count(static_cast<Module*>(module)) == 0) return INVALID_HANDLE;
    drain();
    forget(static_cast<Module*>(module));
    return SUCCESS;
}

FAKE_API int cuModuleGetFunction(void** function, void* module, const char* name) {
    FAKE_ENTER_CONTEXT(cuModuleGetFunction);
    if (modules.count(static_cast<Module*>(module)) == 0) return INVALID_HANDLE;
    auto known = static_cast<Module*>(module);
    auto entry = known->entries.find(name);
    if (entry == known->entries.end()) return NOT_FOUND;
    auto& made = known->functions[name];
    if (!made) {
        Run run = find("simt_" + entry->first);
        if (run == nullptr && settings.empty_kernels) run = nothing;
        if (run == nullptr) return NOT_FOUND;
        Run together = run == nothing ? nothing : find("simt_cooperative_" + entry->first);
        made = std::make_unique<Function>(Function{entry->first, run, together, entry->second});
        functions.insert(made.get());
    }
    *function = made.get();
    return SUCCESS;
}

FAKE_API int cuFuncGetAttribute(int* value, int attribute, void* function) {
    FAKE_ENTER_CONTEXT(cuFuncGetAttribute);
    if (functions.count(static_cast<Function*>(function)) == 0) return INVALID_HANDLE;
    switch (attribute) {
        case 0: *value = static_cast<int>(static_cast<Function*>(function)->entry.threads_max); break;   // MAX_THREADS_PER_BLOCK
        case 1: *value = static_cast<int>(static_cast<Function*>(function)->entry.shared_bytes); break;  // SHARED_SIZE_BYTES
        case 4: *value = 32; break;                                                                      // NUM_REGS
        case 8: *value = static_cast<Function*>(function)->dynamic_shared_max; break;
        default: *value = 0;
    }
    return SUCCESS;
}

FAKE_API int cuFuncSetAttribute(void* function, int attribute, int value) {
    FAKE_ENTER_CONTEXT(cuFuncSetAttribute);
    if (functions.count(static_cast<Function*>(function)) == 0) return INVALID_HANDLE;
    if (attribute != 8 || value < 0 || value > 166912) return INVALID_VALUE;
    static_cast<Function*>(function)->dynamic_shared_max = value;
    return SUCCESS;
}

FAKE_API int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                            unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** params,
                            void** extra) {
    FAKE_ENTER_CONTEXT(cuLaunchKernel);
    auto known = static_cast<Function*>(function);
    if (functions.count(known) == 0) return INVALID_HANDLE;
    if (extra != nullptr) return INVALID_VALUE;
    Shape shape = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
    return submit_kernel(*known, known->run, shape, stream, params);
}

FAKE_API int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void* function, int threads, size_t) {
    FAKE_ENTER_CONTEXT(cuOccupancyMaxActiveBlocksPerMultiprocessor);
    if (functions.count(static_cast<Function*>(function)) == 0) return INVALID_HANDLE;
    if (threads <= 0) return INVALID_VALUE;
    *blocks = static_cast<int>(settings.resident_threads / static_cast<uint64_t>(threads));
    return SUCCESS;
}

FAKE_API int cuLaunchCooperativeKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                       unsigned block_y, unsigned block_z, unsigned shared_bytes, void* stream, void** params) {
    FAKE_ENTER_CONTEXT(cuLaunchCooperativeKernel);
    auto known = static_cast<Function*>(function);
    if (functions.count(known) == 0) return INVALID_HANDLE;
    if (known->run_cooperative == nullptr) return NOT_SUPPORTED;
    Shape shape = {{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared_bytes};
    if (volume(shape.blocks) > resident_blocks(volume(shape.threads))) return COOPERATIVE_LAUNCH_TOO_LARGE;
    return submit_kernel(*known, known->run_cooperative, shape, stream, params);
}

// A number for all kernels that ran since the last call: which, their grids and arguments, in their order.
FAKE_API uint64_t fake_launches() {
    std::lock_guard<std::recursive_mutex> guard(lock);
    return std::exchange(digest, 0);
}

// Opens an object whose functions `simt_<entry>` the entries of modules stand for; whether it could.
FAKE_API int fake_add_kernels(const char* path) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    void* object = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (object != nullptr) objects.push_back(object);
    return object != nullptr;
}

FAKE_API uint64_t fake_runs(const char* kernel) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    return runs[kernel];
}

// For libraries above the driver: what a call of theirs, `call`, is to return before it does anything, or 0.
FAKE_API int fake_library_entered(const char* call) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    return entered(call);
}

FAKE_API uint64_t fake_cublaslt_version() {
    std::lock_guard<std::recursive_mutex> guard(lock);
    return settings.cublaslt_version;
}

// What a library gives a stream to do; `kernel` is what its work is counted as.
FAKE_API int fake_library_submit(void* stream, const char* kernel, const std::function<void()>* run) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    std::string name(kernel);
    return submit(stream, {"library " + name, [name, run = *run] {
        let_pass(name);
        note(name.data(), name.size());
        run();
    }});
}

// From now on `kernel` takes so many microseconds of the GPU's clock.
FAKE_API void fake_takes(const char* kernel, uint64_t us) {
    std::lock_guard<std::recursive_mutex> guard(lock);
    times_us[kernel] = static_cast<double>(us);
}
