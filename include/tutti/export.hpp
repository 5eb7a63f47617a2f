// tutti: marks what the shared library exports; everything else is built hidden.
#pragma once

#define TUTTI_API __attribute__((visibility("default")))
