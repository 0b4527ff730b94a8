// What a runner may offer.
#pragma once

#include "backend/control/offer.h"

namespace bandsaw {

// Of a kernel of which eight blocks fit on an SM, with all of its launch left.
inline OfferFacts plain_offer(uint64_t call, uint64_t shape) {
  OfferFacts facts;
  facts.call = call;
  facts.shape = shape;
  facts.blocks = facts.left = 100'000;
  facts.minimum = 132;
  facts.block_ps = 200'000;
  facts.threads = 256;
  facts.registers = 32;
  facts.most_resident = 8;
  return facts;
}

}  // namespace bandsaw
