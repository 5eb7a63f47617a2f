// Trains on several ranks of this process, a thread each.
#pragma once

#include "train.h"

namespace digits {

/// Returns when all ranks have ended; throws the error with which the trouble began.
Result train_on_threads(int ranks, const Dataset& data, const Settings& settings,
                        Observer* observer);

}  // namespace digits
