#include "emulator/exec/schedule/schedule.h"

#include <algorithm>
#include <cstddef>

#include "emulator/base/fault.h"
#include "emulator/exec/schedule/random.h"

namespace warploom::emulator {
namespace {

constexpr const char* kNames[kStrategies] = {"random", "round-robin", "late", "early", "far-ahead"};

// Instructions of a turn: few enough that waiting warps are not starved, enough that switching
// costs little.
constexpr uint32_t kQuantum = 400;
// One in this many turns an asynchronous operation completes although warps could run.
constexpr uint32_t kCompletionOdds = 4;
// A warp that polls never waits. After this many turns something else gets its chance, so that
// strategies which prefer one thing do not prefer it for ever.
constexpr uint32_t kPatience = 512;

class RandomScheduler final : public Scheduler {
 public:
  explicit RandomScheduler(uint64_t seed) : random_(seed) {}

  Turn next(const std::vector<uint32_t>& ready, uint32_t pending) override {
    Turn turn;
    auto warps = static_cast<uint32_t>(ready.size());
    turn.completes = pending != 0 && (warps == 0 || random_.below(kCompletionOdds) == 0);
    turn.which = random_.below(turn.completes ? pending : warps);
    if (!turn.completes) turn.instructions = kQuantum / 2 + random_.below(kQuantum);
    return turn;
  }

 private:
  Random random_;
};

// The first warp of `ready` that comes after `last`, cyclically.
uint32_t after(const std::vector<uint32_t>& ready, uint32_t last) {
  auto next = std::upper_bound(ready.begin(), ready.end(), last);
  return next == ready.end() ? 0 : static_cast<uint32_t>(next - ready.begin());
}

// The oldest operation completes after each round of the warps.
class RoundRobinScheduler final : public Scheduler {
 public:
  Turn next(const std::vector<uint32_t>& ready, uint32_t pending) override {
    Turn turn;
    turn.instructions = kQuantum;
    bool round_over = ready.empty() || ready.back() <= last_;
    if (pending != 0 && round_over && !completed_) {
      completed_ = true;
      turn.completes = true;
    } else if (ready.empty()) {
      turn.completes = true;
    } else {
      turn.which = after(ready, last_);
      last_ = ready[turn.which];
      completed_ = false;
    }
    return turn;
  }

 private:
  uint32_t last_ = UINT32_MAX;
  bool completed_ = false;
};

class LateScheduler final : public Scheduler {
 public:
  explicit LateScheduler(uint64_t seed) : random_(seed) {}

  Turn next(const std::vector<uint32_t>& ready, uint32_t pending) override {
    Turn turn;
    turn.completes = ready.empty() || (pending != 0 && ++waited_ > kPatience);
    if (turn.completes) {
      waited_ = 0;
      turn.which = random_.below(pending);
    } else {
      turn.which = random_.below(static_cast<uint32_t>(ready.size()));
      turn.instructions = kQuantum;
    }
    return turn;
  }

 private:
  Random random_;
  uint32_t waited_ = 0;
};

class EarlyScheduler final : public Scheduler {
 public:
  explicit EarlyScheduler(uint64_t seed) : random_(seed) {}

  Turn next(const std::vector<uint32_t>& ready, uint32_t pending) override {
    Turn turn;
    turn.completes = pending != 0;
    if (!turn.completes) {
      turn.which = random_.below(static_cast<uint32_t>(ready.size()));
      turn.instructions = kQuantum;
      turn.to_sync = true;  // so that nothing runs between an operation's issue and its completion
    }
    return turn;
  }

 private:
  Random random_;
};

// A warp keeps the turn until it waits; who comes next is random. Operations complete seldom.
class FarAheadScheduler final : public Scheduler {
 public:
  explicit FarAheadScheduler(uint64_t seed) : random_(seed) {}

  Turn next(const std::vector<uint32_t>& ready, uint32_t pending) override {
    Turn turn;
    turn.completes =
        ready.empty() || (pending != 0 && random_.below(8 * kCompletionOdds) == 0);
    if (turn.completes) {
      turn.which = random_.below(pending);
      return turn;
    }
    auto place = std::lower_bound(ready.begin(), ready.end(), ahead_);
    bool keeps = place != ready.end() && *place == ahead_ && ++turns_ <= kPatience;
    if (keeps) {
      turn.which = static_cast<uint32_t>(place - ready.begin());
    } else {
      turn.which = random_.below(static_cast<uint32_t>(ready.size()));
      ahead_ = ready[turn.which];
      turns_ = 0;
    }
    turn.instructions = kQuantum;
    return turn;
  }

 private:
  Random random_;
  uint32_t ahead_ = UINT32_MAX;
  uint32_t turns_ = 0;
};

std::unique_ptr<Scheduler> make_scheduler(Strategy strategy, uint64_t seed) {
  switch (strategy) {
    case Strategy::kRandom: return std::make_unique<RandomScheduler>(seed);
    case Strategy::kRoundRobin: return std::make_unique<RoundRobinScheduler>();
    case Strategy::kLate: return std::make_unique<LateScheduler>(seed);
    case Strategy::kEarly: return std::make_unique<EarlyScheduler>(seed);
    case Strategy::kFarAhead: return std::make_unique<FarAheadScheduler>(seed);
  }
  fault("internal error: no such strategy");
}

}  // namespace

const char* strategy_name(Strategy strategy) { return kNames[static_cast<int>(strategy)]; }

bool find_strategy(const std::string& name, Strategy* strategy) {
  const char* const* entry = std::find(kNames, kNames + kStrategies, name);
  if (entry == kNames + kStrategies) return false;
  *strategy = static_cast<Strategy>(entry - kNames);
  return true;
}

std::string describe_schedule(const Schedule& schedule) {
  return format("strategy %s, seed %llu", strategy_name(schedule.strategy),
                static_cast<unsigned long long>(schedule.seed));
}

SchedulerSource schedulers_of(const Schedule& schedule) {
  return [schedule](uint64_t cluster) {
    // The seeds of the clusters are apart from each other, and cluster 0 has the launch's own.
    uint64_t seed = cluster == 0 ? schedule.seed : Random(schedule.seed ^ cluster << 20).next();
    return make_scheduler(schedule.strategy, seed);
  };
}

}  // namespace warploom::emulator
