// Streams and events. Work is done when it is submitted, or, where a test asks for it, only when somebody waits for it.
#include "fake.hpp"

#include <map>
#include <memory>
#include <set>
#include <vector>

namespace fake {
namespace {

// One thing submitted to a stream. `after` is a thing on another stream that must be done first.
struct Thing {
    void* stream;
    std::function<void()> work;
    std::shared_ptr<Thing> after;
    bool done = false;
};

struct Event {
    std::shared_ptr<Thing> recorded;
    double at_us;
};

// All that is not done, in the order of submission.
std::vector<std::shared_ptr<Thing>> queue;
// Each with whether it is ordered with the null stream.
std::map<void*, bool> streams;
std::set<Event*> events;

// The null stream waits for what was submitted to any stream that blocks, and each of these for what was submitted to the null stream.
bool ordered(const Thing& earlier, const Thing& later) {
    if (earlier.stream == later.stream) return true;
    if (earlier.stream == nullptr) return is_blocking(later.stream);
    return later.stream == nullptr && is_blocking(earlier.stream);
}

void run(const std::shared_ptr<Thing>& thing) {
    if (thing->done) return;
    // A copy: what runs first leaves the queue.
    auto before = queue;
    for (const auto& earlier : before) {
        if (earlier == thing) break;
        if (ordered(*earlier, *thing)) run(earlier);
    }
    if (thing->after) run(thing->after);
    thing->done = true;
    thing->work();
    for (auto at = queue.begin(); at != queue.end(); ++at) {
        if (*at == thing) {
            queue.erase(at);
            break;
        }
    }
}

std::shared_ptr<Thing> append(void* stream, std::function<void()> work, std::shared_ptr<Thing> after) {
    auto thing = std::make_shared<Thing>(Thing{stream, std::move(work), std::move(after)});
    queue.push_back(thing);
    if (settings.deferred == 0) run(thing);
    return thing;
}

std::shared_ptr<Thing> last_of(void* stream) {
    for (auto at = queue.rbegin(); at != queue.rend(); ++at) {
        if (ordered(**at, Thing{stream, {}, {}})) return *at;
    }
    return nullptr;
}

bool is_event(void* event) { return events.count(static_cast<Event*>(event)) > 0; }

}  // namespace

bool is_stream(void* stream) { return stream == nullptr || streams.count(stream) > 0; }

bool is_blocking(void* stream) { return stream == nullptr || streams.at(stream); }

int submit(void* stream, Work work) {
    if (!is_stream(stream)) return INVALID_HANDLE;
    if (is_capturing(stream)) return capture(stream, std::move(work));
    if (int code = stream == nullptr ? spoil_capture(stream) : SUCCESS) return code;
    append(stream, std::move(work.run), nullptr);
    return SUCCESS;
}

uint64_t stream_objects() { return streams.size() + events.size(); }

bool pending() { return !queue.empty(); }

void finish(void* stream) {
    while (auto last = last_of(stream)) run(last);
}

void drain() {
    while (!queue.empty()) run(queue.front());
}

void reset_streams() {
    queue.clear();
    for (auto& stream : streams) delete static_cast<char*>(stream.first);
    for (Event* event : events) delete event;
    streams.clear();
    events.clear();
}
}  // namespace fake

using namespace fake;

FAKE_API int cuStreamCreateWithPriority(void** stream, unsigned flags, int) {
    FAKE_ENTER_CONTEXT(cuStreamCreateWithPriority);
    *stream = new char;
    streams[*stream] = (flags & 1) == 0;  // NON_BLOCKING
    return SUCCESS;
}

FAKE_API int cuStreamDestroy_v2(void* stream) {
    FAKE_ENTER_CONTEXT(cuStreamDestroy_v2);
    if (stream == nullptr || !is_stream(stream)) return INVALID_HANDLE;
    if (int code = spoil_capture(stream)) return code;
    finish(stream);
    streams.erase(stream);
    delete static_cast<char*>(stream);
    return SUCCESS;
}

FAKE_API int cuStreamSynchronize(void* stream) {
    FAKE_ENTER_CONTEXT(cuStreamSynchronize);
    if (!is_stream(stream)) return INVALID_HANDLE;
    if (int code = spoil_capture(stream)) return code;
    finish(stream);
    return failure;
}

// Answers for now, and then lets one thing be done, so that asking again and again comes to an end.
FAKE_API int cuStreamQuery(void* stream) {
    FAKE_ENTER_CONTEXT(cuStreamQuery);
    if (!is_stream(stream)) return INVALID_HANDLE;
    if (int code = spoil_capture(stream)) return code;
    auto last = last_of(stream);
    if (!last) return SUCCESS;
    run(queue.front());
    return NOT_READY;
}

FAKE_API int cuStreamWaitEvent(void* stream, void* event, unsigned) {
    FAKE_ENTER_CONTEXT(cuStreamWaitEvent);
    if (!is_stream(stream) || !is_event(event)) return INVALID_HANDLE;
    if (int code = spoil_capture(stream)) return code;
    append(stream, [] {}, static_cast<Event*>(event)->recorded);
    return SUCCESS;
}

FAKE_API int cuEventCreate(void** event, unsigned) {
    FAKE_ENTER_CONTEXT(cuEventCreate);
    auto made = new Event();
    events.insert(made);
    *event = made;
    return SUCCESS;
}

FAKE_API int cuEventDestroy_v2(void* event) {
    FAKE_ENTER_CONTEXT(cuEventDestroy_v2);
    if (!is_event(event)) return INVALID_HANDLE;
    auto known = static_cast<Event*>(event);
    // The thing that records may still be in the queue and would write here.
    if (known->recorded) run(known->recorded);
    events.erase(known);
    delete known;
    return SUCCESS;
}

FAKE_API int cuEventRecord(void* event, void* stream) {
    FAKE_ENTER_CONTEXT(cuEventRecord);
    if (!is_stream(stream) || !is_event(event)) return INVALID_HANDLE;
    if (int code = spoil_capture(stream)) return code;
    auto known = static_cast<Event*>(event);
    known->recorded = append(stream, [known] { known->at_us = clock_us(); }, nullptr);
    return SUCCESS;
}

FAKE_API int cuEventQuery(void* event) {
    FAKE_ENTER_UNCAPTURED(cuEventQuery);
    if (!is_event(event)) return INVALID_HANDLE;
    auto recorded = static_cast<Event*>(event)->recorded;
    if (!recorded || recorded->done) return SUCCESS;
    run(queue.front());
    return NOT_READY;
}

FAKE_API int cuEventSynchronize(void* event) {
    FAKE_ENTER_UNCAPTURED(cuEventSynchronize);
    if (!is_event(event)) return INVALID_HANDLE;
    auto recorded = static_cast<Event*>(event)->recorded;
    if (recorded) run(recorded);
    return failure;
}

FAKE_API int cuEventElapsedTime(float* ms, void* start, void* end) {
    FAKE_ENTER_CONTEXT(cuEventElapsedTime);
    if (!is_event(start) || !is_event(end)) return INVALID_HANDLE;
    auto from = static_cast<Event*>(start), to = static_cast<Event*>(end);
    if (!from->recorded || !to->recorded) return INVALID_HANDLE;
    if (!from->recorded->done || !to->recorded->done) return NOT_READY;
    *ms = static_cast<float>((to->at_us - from->at_us) / 1e3);
    return SUCCESS;
}
