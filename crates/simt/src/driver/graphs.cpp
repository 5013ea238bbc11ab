// Captures: what a stream is given while it captures becomes a graph, which runs nothing until it is launched.
#include "fake.hpp"

#include <map>
#include <set>
#include <utility>
#include <vector>

namespace fake {
namespace {

// Nodes that follow one another, as those of one stream do.
struct Graph {
    std::vector<Work> nodes;
};

struct Capture {
    Graph graph;
    // Whether calls that have no place in a capture spoil it when its own thread makes them.
    bool guards_thread;
    const void* thread;
    bool is_spoiled = false;
};

std::map<void*, Capture> captures;  // by stream
std::set<Graph*> graphs, executables;

// Its address is a thread's name.
thread_local char this_thread;

bool are_alike(const Graph& one, const Graph& other) {
    if (one.nodes.size() != other.nodes.size()) return false;
    for (size_t i = 0; i < one.nodes.size(); ++i)
        if (one.nodes[i].kind != other.nodes[i].kind) return false;
    return true;
}

int destroy(std::set<Graph*>& all, void* handle) {
    auto graph = static_cast<Graph*>(handle);
    if (all.erase(graph) == 0) return INVALID_VALUE;
    delete graph;
    return SUCCESS;
}

}  // namespace

bool is_capturing(void* stream) { return captures.count(stream) > 0; }

int capture(void* stream, Work work) {
    Capture& capture = captures.at(stream);
    if (capture.is_spoiled) return STREAM_CAPTURE_INVALIDATED;
    capture.graph.nodes.push_back(std::move(work));
    return SUCCESS;
}

int spoil_capture() {
    int code = SUCCESS;
    for (auto& capture : captures) {
        if (!capture.second.guards_thread || capture.second.thread != &this_thread) continue;
        capture.second.is_spoiled = true;
        code = STREAM_CAPTURE_UNSUPPORTED;
    }
    return code;
}

int spoil_capture(void* stream) {
    int code = SUCCESS;
    for (auto& capture : captures) {
        // The null stream would wait for what runs later, and only when the graph is launched.
        bool implicitly = stream == nullptr && is_blocking(capture.first);
        if (capture.first != stream && !implicitly) continue;
        capture.second.is_spoiled = true;
        code = implicitly ? STREAM_CAPTURE_IMPLICIT : STREAM_CAPTURE_UNSUPPORTED;
    }
    return code;
}

uint64_t graph_objects() { return captures.size() + graphs.size() + executables.size(); }

void reset_graphs() {
    captures.clear();
    while (!graphs.empty()) destroy(graphs, *graphs.begin());
    while (!executables.empty()) destroy(executables, *executables.begin());
}
}  // namespace fake

using namespace fake;

FAKE_API int cuStreamBeginCapture_v2(void* stream, int mode) {
    FAKE_ENTER_CONTEXT(cuStreamBeginCapture_v2);
    if (!is_stream(stream)) return INVALID_HANDLE;
    if (stream == nullptr) return STREAM_CAPTURE_UNSUPPORTED;
    if (is_capturing(stream) || mode < 0 || mode > 2) return INVALID_VALUE;
    captures[stream] = Capture{{}, mode != 2, &this_thread};
    return SUCCESS;
}

FAKE_API int cuStreamEndCapture(void* stream, void** graph) {
    FAKE_ENTER_CONTEXT(cuStreamEndCapture);
    auto found = captures.find(stream);
    if (found == captures.end()) return INVALID_VALUE;
    if (found->second.guards_thread && found->second.thread != &this_thread) return STREAM_CAPTURE_WRONG_THREAD;
    Capture capture = std::move(found->second);
    captures.erase(found);
    *graph = nullptr;
    if (capture.is_spoiled) return STREAM_CAPTURE_INVALIDATED;
    *graph = *graphs.insert(new Graph(std::move(capture.graph))).first;
    return SUCCESS;
}

FAKE_API int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long flags) {
    FAKE_ENTER_CONTEXT(cuGraphInstantiateWithFlags);
    if (graphs.count(static_cast<Graph*>(graph)) == 0 || flags != 0) return INVALID_VALUE;
    *executable = *executables.insert(new Graph(*static_cast<Graph*>(graph))).first;
    return SUCCESS;
}

// The driver lets a node have another function under conditions; here its function stays.
FAKE_API int cuGraphExecUpdate(void* executable, void* graph, void** error_node, int* result) {
    FAKE_ENTER_CONTEXT(cuGraphExecUpdate);
    auto known = static_cast<Graph*>(executable), by = static_cast<Graph*>(graph);
    if (executables.count(known) == 0 || graphs.count(by) == 0) return INVALID_VALUE;
    *error_node = nullptr;
    *result = are_alike(*known, *by) ? 0 : 2;  // SUCCESS, ERROR_TOPOLOGY_CHANGED
    if (*result != 0) return GRAPH_EXEC_UPDATE_FAILURE;
    known->nodes = by->nodes;
    return SUCCESS;
}

FAKE_API int cuGraphLaunch(void* executable, void* stream) {
    FAKE_ENTER_CONTEXT(cuGraphLaunch);
    auto known = static_cast<Graph*>(executable);
    if (executables.count(known) == 0) return INVALID_VALUE;
    // The nodes as they are now: an update afterwards does not change them.
    auto nodes = known->nodes;
    return submit(stream, {"graph", [=] {
        for (auto& node : nodes) node.run();
    }});
}

FAKE_API int cuGraphExecDestroy(void* executable) {
    FAKE_ENTER_CONTEXT(cuGraphExecDestroy);
    return destroy(executables, executable);
}

FAKE_API int cuGraphDestroy(void* graph) {
    FAKE_ENTER_CONTEXT(cuGraphDestroy);
    return destroy(graphs, graph);
}
