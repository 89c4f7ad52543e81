// Synchronisation through memory, and the scopes that limit it: a release orders nothing for
// threads outside its scope, and an acquire takes nothing from threads outside its own.

#include <algorithm>
#include <cstddef>

#include "emulator/check/checker.h"
#include "emulator/exec/machine/cluster.h"
#include "emulator/exec/machine/describe_op.h"

namespace warploom::emulator {
namespace {

// Releases that a scope kept from somebody; reports name the scope of the latest.
constexpr std::size_t kMostNarrow = 256;

std::size_t index(Scope scope) { return static_cast<std::size_t>(scope); }

}  // namespace

const char* scope_name(Scope scope) {
  static constexpr const char* kNames[] = {"CTA", "cluster", "device"};
  return kNames[index(scope)];
}

const char* scope_modifier(Scope scope) {
  static constexpr const char* kModifiers[] = {".cta", ".cluster", ".gpu"};
  return kModifiers[index(scope)];
}

// A strong read learns what was released at its location. A relaxed one does so on behalf of the
// fence after it.
void Checker::acquire_at(Warp& warp, const Op& op, uint64_t location, bool global,
                         Ordering ordering) {
  WarpState& own = state(warp);
  SyncLocations& locations = global ? checks_.locations : shared_locations_;
  uint64_t& seen = own.seen[location][ordering.acquires() ? 1 : 0][index(ordering.scope)];
  Releases found;
  std::vector<NarrowRelease> narrow;
  const Reader reader{id_, warp.cta().rank(), ordering.scope};
  if (!locations.collect(location, reader, seen, found, narrow)) return;
  for (const NarrowRelease& each : narrow) note_narrow(each, op);
  if (ordering.acquires()) {
    apply(own, found);
  } else {
    own.acquirable.join(found);
  }
}

// A strong write releases; a relaxed one does so on behalf of the fences before it, each for what
// its scope and that of the write have in common.
void Checker::release_at(Warp& warp, const Op& op, uint64_t location, bool global,
                         Ordering ordering) {
  WarpState& own = state(warp);
  SyncLocations& locations = global ? checks_.locations : shared_locations_;
  if (ordering.releases()) {
    locations.publish(location, ordering.scope, make_release(warp, op), foreign_);
    return;
  }
  ReleasePtr wider;
  for (std::size_t i = index(ordering.scope) + 1; i-- != 0;) {
    ReleasePtr fence = own.fences[i];
    if (fence == nullptr || fence == wider) continue;
    wider = fence;
    const bool limited = i + 1 < kScopes && own.fences[i + 1] == fence;
    if (limited) {
      auto of_write = std::make_shared<Release>(*fence);
      of_write->op = &op;
      fence = of_write;
    }
    locations.publish(location, static_cast<Scope>(i), fence, own.fence_others);
  }
}

void Checker::apply(WarpState& own, const Releases& releases) {
  releases.for_each_of(id_, [&](const Release& release) { learn(own, *release.known); });
  foreign_.join(releases);
}

void Checker::note_narrow(const NarrowRelease& narrow, const Op& acquire) {
  for (NarrowOrder& order : narrow_) {
    const Release& old = *order.narrow.release;
    const Release& release = *narrow.release;
    if (order.acquire != &acquire || old.op != release.op || old.cluster != release.cluster ||
        old.warp != release.warp || order.narrow.released_narrowly != narrow.released_narrowly) {
      continue;
    }
    if (old.sequence < release.sequence) order.narrow = narrow;
    return;
  }
  if (narrow_.size() < kMostNarrow) narrow_.push_back({narrow, &acquire});
}

Scope Checker::distance(const Access& a, const Access& b) const {
  if (a.cluster != b.cluster) return Scope::kDevice;
  const uint32_t threads = warps_per_cta_ * kLanes;
  return a.thread / threads == b.thread / threads ? Scope::kCta : Scope::kCluster;
}

bool Checker::both_strong(const Access& a, const Access& b) const {
  if (!(a.flags & b.flags & Access::kStrong)) return false;
  const Scope apart = distance(a, b);
  return apart <= a.scope() && apart <= b.scope();
}

std::string Checker::scope_problem(const Access& prior, const Actor& actor) const {
  static constexpr const char* kApart[] = {"in one CTA", "in two CTAs of a cluster",
                                           "in two CTAs of no common cluster"};
  if (prior.flags & actor.mark.flags & Access::kStrong) {
    const Scope apart = distance(prior, actor.mark);
    const Access& narrow = prior.scope() < apart ? prior : actor.mark;
    return format("%s is atomic for its %s only, but the two are %s. Fix: scope %s or wider there",
                  describe_op(program_, program_.ops[narrow.op]).c_str(),
                  scope_name(narrow.scope()), kApart[index(apart)], scope_modifier(apart));
  }
  for (const NarrowOrder& order : narrow_) {
    const Release& release = *order.narrow.release;
    if (release.cluster != prior.cluster || !release.known->base.knows(prior.stamp())) continue;
    const Op* blamed = order.narrow.released_narrowly ? release.op : order.acquire;
    const Op* other = order.narrow.released_narrowly ? order.acquire : release.op;
    return format(
        "the scope of %s does not include the thread of %s, so that it does not order the "
        "two: they are %s. Fix: scope %s or wider there",
        describe_op(program_, *blamed).c_str(), describe_op(program_, *other).c_str(),
        kApart[index(order.narrow.needed)], scope_modifier(order.narrow.needed));
  }
  return "";
}

}  // namespace warploom::emulator
