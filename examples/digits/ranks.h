// Trains on several ranks of this process, one for each thread.
#pragma once

#include "train.h"

namespace digits {

/// Returns when all ranks have ended. Throws the error that came first; other ranks' errors follow
/// from it.
Result train_on_threads(int ranks, const Dataset& data, const Settings& settings,
                        Observer* observer);

}  // namespace digits
