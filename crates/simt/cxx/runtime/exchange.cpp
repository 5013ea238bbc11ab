// What the lanes of a warp do together.

#include "block.h"

namespace simt {

namespace {

bool same_site(const Request& a, const Request& b) {
  return a.site.line == b.site.line && strcmp(a.site.file, b.site.file) == 0;
}

// Lanes may meet at different `__syncwarp`; in any other operation they must have come to the same one.
bool agree(const Request& a, const Request& b) {
  if (a.mask != b.mask || a.exchange != b.exchange) return false;
  return a.exchange == Exchange::barrier || same_site(a, b);
}

std::string text(const Fiber& fiber) {
  char mask[24];
  snprintf(mask, sizeof mask, "mask 0x%08x", fiber.request->mask);
  return Block::name(fiber) + " in " + fiber.what + " " + text(fiber.site) + " with " + mask;
}

// The value that a shuffle gives when its source takes no part: undefined in CUDA, and NaN as a float.
constexpr uint64_t UNDEFINED = ~uint64_t(0);

uint64_t result_of(const Fiber* warp, unsigned lane, uint32_t taking_part) {
  const Request& own = *warp[lane].request;
  uint64_t upper = (uint64_t)taking_part << 32, lanes = 0;
  switch (own.exchange) {
    case Exchange::barrier:
      return 0;
    case Exchange::shuffle:
      return taking_part >> own.source_lane & 1 ? warp[own.source_lane].request->value : UNDEFINED;
    case Exchange::vote:
      for (unsigned k = 0; k < WARP; k++) lanes |= (taking_part >> k & 1) && warp[k].request->value != 0 ? 1u << k : 0u;
      return upper | lanes;
    case Exchange::match:
      for (unsigned k = 0; k < WARP; k++) lanes |= (taking_part >> k & 1) && warp[k].request->value == own.value ? 1u << k : 0u;
      return upper | lanes;
  }
  return 0;
}

}  // namespace

uint32_t Block::live(const Fiber* warp) const {
  uint32_t lanes = 0;
  size_t count = std::min<size_t>(WARP, fibers_.data() + fibers_.size() - warp);
  for (unsigned lane = 0; lane < count; lane++) lanes |= warp[lane].state != State::done ? 1u << lane : 0u;
  return lanes;
}

uint64_t Block::exchange(const Request& request) {
  Fiber& fiber = *current_;
  Fiber* warp = warp_at(warp_of(fiber));
  fiber.request = &request;
  fiber.what = request.what;
  fiber.site = request.site;
  fiber.state = State::in_exchange;
  if (!(request.mask >> fiber.number % WARP & 1)) fail("divergent warp: the calling lane is not in its mask: " + text(fiber));
  require_agreement(fiber, warp);
  open_exchange_if_complete(warp, request.mask);
  if (fiber.state == State::in_exchange) suspend(fiber.state, request.what, request.site);
  return fiber.result;
}

// Two lanes that wait for each other in different operations would wait for ever, or on a GPU trade wrong values.
void Block::require_agreement(const Fiber& arrived, Fiber* warp) {
  uint32_t others = live(warp) & arrived.request->mask;
  for (unsigned lane = 0; lane < WARP; lane++) {
    if (!(others >> lane & 1) || warp[lane].state != State::in_exchange) continue;
    const Request& other = *warp[lane].request;
    bool waits_for_arrived = other.mask >> arrived.number % WARP & 1;
    if (waits_for_arrived && !agree(*arrived.request, other)) {
      fail("divergent warp: two lanes wait for each other in different operations:\n  " + text(warp[lane]) + "\n  " + text(arrived));
    }
  }
}

void Block::open_exchange_if_complete(Fiber* warp, uint32_t mask) {
  uint32_t taking_part = live(warp) & mask;
  for (unsigned lane = 0; lane < WARP; lane++) {
    bool awaited = taking_part >> lane & 1;
    if (awaited && (warp[lane].state != State::in_exchange || warp[lane].request->mask != mask)) return;
  }
  for (unsigned lane = 0; lane < WARP; lane++) {
    if (taking_part >> lane & 1) warp[lane].result = result_of(warp, lane, taking_part);
  }
  // Shuffles, votes and matches trade numbers, and order nothing in memory.
  bool orders = false;
  for (unsigned lane = 0; lane < WARP; lane++) {
    if (!(taking_part >> lane & 1)) continue;
    orders |= warp[lane].request->exchange == Exchange::barrier;
    warp[lane].state = State::ready;
  }
  if (orders) memory_.warp_synced(warp[0].number / WARP);
}

unsigned lane() { return block().running().number % WARP; }

uint64_t exchange(const Request& request) { return block().exchange(request); }

}  // namespace simt
