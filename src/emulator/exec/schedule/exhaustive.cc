#include "emulator/exec/schedule/exhaustive.h"

#include <algorithm>

#include "emulator/base/fault.h"

namespace warploom::emulator {
namespace {

// Instructions without synchronisation after which somebody looks whether the launch has to end.
constexpr uint32_t kStretch = 1 << 16;
// Synchronising instructions that a warp executes before others have to get a chance.
constexpr uint32_t kPatience = 1024;

class TreeScheduler final : public Scheduler {
 public:
  explicit TreeScheduler(ChoiceTree* tree)
      : tree_(tree), preemptions_(tree != nullptr ? tree->preemptions() : 0) {}

  Turn next(const std::vector<uint32_t>& ready, uint32_t pending) override {
    bool goes_on = can_run(ready, last_) && !polls(last_);
    if (goes_on && stop_ == Stop::kElsewhere) return run(ready, last_);
    gather(ready, pending, goes_on);
    if (goes_on && preemptions_ == 0) {
      if (tree_ != nullptr && options_.size() > 1) tree_->cut();
      return run(ready, last_);
    }
    auto count = static_cast<uint32_t>(options_.size());
    Option taken = options_[count > 1 && tree_ != nullptr ? tree_->choose(count) : 0];
    if (goes_on && !(taken == Option{false, last_})) --preemptions_;
    if (!taken.completes) return run(ready, taken.which);
    polling_.clear();
    Turn turn;
    turn.completes = true;
    turn.which = taken.which;
    return turn;
  }

  void ran(Stop stop) override {
    stop_ = stop;
    // A loop around an access that others may change looks like progress: it is not for ever.
    if (stop == Stop::kSync && ++repeats_ > kPatience) {
      if (tree_ != nullptr) tree_->cut();
      stop_ = Stop::kYield;
    }
    if (stop_ != Stop::kYield) {
      polling_.clear();
    } else if (!polls(last_)) {
      polling_.push_back(last_);
    }
  }

 private:
  struct Option {
    bool completes;
    uint32_t which;  // number of the warp in the cluster, or index of the operation
    bool operator==(const Option& other) const {
      return completes == other.completes && which == other.which;
    }
  };

  static bool can_run(const std::vector<uint32_t>& ready, uint32_t warp) {
    return std::binary_search(ready.begin(), ready.end(), warp);
  }

  bool polls(uint32_t warp) const {
    return std::find(polling_.begin(), polling_.end(), warp) != polling_.end();
  }

  // The warp that ran last comes first: the first schedule preempts nothing. Warps that have found
  // nothing new are left out until something happens, if anything can.
  void gather(const std::vector<uint32_t>& ready, uint32_t pending, bool last_first) {
    options_.clear();
    if (last_first) options_.push_back({false, last_});
    for (uint32_t warp : ready) {
      if (!(last_first && warp == last_) && !polls(warp)) options_.push_back({false, warp});
    }
    for (uint32_t i = 0; i < pending; ++i) options_.push_back({true, i});
    if (!options_.empty()) return;
    polling_.clear();
    options_.push_back({false, ready.front() == last_ ? ready.back() : ready.front()});
  }

  Turn run(const std::vector<uint32_t>& ready, uint32_t warp) {
    Turn turn;
    auto place = std::lower_bound(ready.begin(), ready.end(), warp);
    turn.which = static_cast<uint32_t>(place - ready.begin());
    turn.instructions = kStretch;
    turn.to_sync = true;
    if (warp != last_) repeats_ = 0;
    last_ = warp;
    return turn;
  }

  ChoiceTree* tree_;
  uint32_t preemptions_;
  uint32_t last_ = UINT32_MAX;
  Stop stop_ = Stop::kSync;
  uint32_t repeats_ = 0;           // turns that the last warp has had without a pause
  std::vector<uint32_t> polling_;  // warps that wait for something by asking for it
  std::vector<Option> options_;
};

}  // namespace

uint32_t ChoiceTree::choose(uint32_t options) {
  if (depth_ == choices_.size()) choices_.push_back({0, options});
  const Choice& choice = choices_[depth_++];
  if (choice.options != options) {
    fault("the kernel does something else when it is executed again in the same order; the "
          "exhaustive search needs kernels that depend on nothing but their arguments");
  }
  return choice.taken;
}

bool ChoiceTree::advance() {
  choices_.resize(std::min(choices_.size(), depth_));
  depth_ = 0;
  while (!choices_.empty() && choices_.back().taken + 1 == choices_.back().options) {
    choices_.pop_back();
  }
  if (choices_.empty()) return false;
  ++choices_.back().taken;
  return true;
}

std::string ChoiceTree::describe() const {
  std::string text;
  for (std::size_t i = 0; i < std::min(depth_, choices_.size()); ++i) {
    text += (i == 0 ? "" : " ") + std::to_string(choices_[i].taken);
  }
  return text;
}

std::unique_ptr<Scheduler> make_tree_scheduler(ChoiceTree* tree) {
  return std::make_unique<TreeScheduler>(tree);
}

}  // namespace warploom::emulator
