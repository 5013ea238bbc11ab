// What the parts of the fake driver share. It emulates enough of the CUDA driver on the CPU to run gpu-core against it, is stricter than
// the driver where a caller could go wrong unseen, and fails where a test asks it to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

namespace fake {

// Codes of the driver's header, by its names without the prefix.
enum Code : int {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_CONTEXT = 201,
    NO_BINARY_FOR_GPU = 209,
    INVALID_PTX = 218,
    UNSUPPORTED_PTX_VERSION = 222,
    ILLEGAL_STATE = 401,
    INVALID_HANDLE = 400,
    NOT_FOUND = 500,
    NOT_READY = 600,
    LAUNCH_FAILED = 719,
    COOPERATIVE_LAUNCH_TOO_LARGE = 720,
    NOT_SUPPORTED = 801,
    STREAM_CAPTURE_UNSUPPORTED = 900,
    STREAM_CAPTURE_INVALIDATED = 901,
    STREAM_CAPTURE_IMPLICIT = 906,
    STREAM_CAPTURE_WRONG_THREAD = 908,
    GRAPH_EXEC_UPDATE_FAILURE = 910,
};

// What a test may set, with the values that a fresh driver has.
struct Settings {
    uint64_t devices = 1;
    uint64_t driver_version = 12040;
    uint64_t total_bytes = 256u << 20;
    uint64_t compute_capability = 80;
    uint64_t virtual_memory = 1;
    // Bytes that someone else holds of the device.
    uint64_t held_by_others_bytes = 0;
    // Threads that a multiprocessor holds at once: the only bound on blocks.
    uint64_t resident_threads = 2048;
    uint64_t empty_kernels = 0;
    // 0: work is done when it is submitted. 1: as late as the order of streams and events allows, so that a missing order shows.
    uint64_t deferred = 0;
    // Version of the fake cuBLASLt as the library tells it; 0: what is there of it is too old for anybody.
    uint64_t cublaslt_version = 0;
};

// One lock for all state: every entry point holds it.
extern std::recursive_mutex lock;
extern Settings settings;

// Counts the call; the code it must fail with, or 0.
int entered(const char* call);
// Like `entered`, for calls that need cuInit and a current context.
int entered_with_context(const char* call);

// The code with which work has failed, and with which every call of its context fails from then on; 0 as long as none has.
extern int failure;

// Of the GPU, by its number in the driver's header.
int attribute(int name);

// Microseconds by the GPU's clock: the sum of what the kernels took that ran, where a test has said how long they take, and else the machine's.
double clock_us();

// What a stream is given to do, any number of times where it becomes a node of a graph. A graph can take the place of another whose nodes are of the same kinds.
struct Work {
    std::string kind;
    std::function<void()> run;
};

// Runs `work` on `stream` in order, or makes it the next node of a graph where the stream is capturing.
int submit(void* stream, Work work);
// Whether the stream is one, and whether it waits for the null stream and is waited for.
bool is_stream(void* stream);
bool is_blocking(void* stream);
// Whether any work of a stream is captured and not run.
bool is_capturing(void* stream);
// Makes `work` a node of the graph that `stream` captures.
int capture(void* stream, Work work);
// What a call returns that has no place in a capture, and spoils it: of this thread, or of `stream`. 0 where there is none.
int spoil_capture();
int spoil_capture(void* stream);
// Whether any work is submitted and not done.
bool pending();
// Runs the work submitted to `stream`, and what it waits for.
void finish(void* stream);
// Runs all submitted work.
void drain();

// Counts a run of a kernel, or of what a library calls so, and lets the time pass that a test has said it takes.
void let_pass(const std::string& kernel);

void reset_memory();
void reset_streams();
void reset_modules();
void reset_graphs();
// Bytes of physical memory that exist.
uint64_t physical_bytes();

// How much exists that somebody has to give back.
uint64_t memory_objects();
uint64_t stream_objects();
uint64_t module_objects();
uint64_t graph_objects();

// The driver's interface is C's, and nothing is thrown across it.
#define FAKE_API extern "C" __attribute__((visibility("default")))
#define FAKE_ENTER(call)                                                \
    std::lock_guard<std::recursive_mutex> fake_guard(fake::lock);       \
    if (int fake_code = fake::entered(#call)) return fake_code
#define FAKE_ENTER_CONTEXT(call)                                        \
    std::lock_guard<std::recursive_mutex> fake_guard(fake::lock);       \
    if (int fake_code = fake::entered_with_context(#call)) return fake_code
// The same for what must not be done while the thread captures a stream: what waits, and what takes or gives back memory.
#define FAKE_ENTER_UNCAPTURED(call) \
    FAKE_ENTER_CONTEXT(call);       \
    if (int fake_code = fake::spoil_capture()) return fake_code

}  // namespace fake
