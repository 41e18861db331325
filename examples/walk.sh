#!/bin/sh
# Any program can be a trainer: this one is awk. It gets its seed and its values as words, and writes one JSON object a line.
exec awk -v seed="$1" -v drift="$2" -v steps="$3" 'BEGIN {
  srand(seed)
  for (step = 1; step <= steps; step++) {
    distance += rand() - 0.5 + drift * 2 * rand()
    printf "{\"step\": %d, \"distance\": %.6f}\n", step, distance
  }
}' > "$ABLATE_METRICS"
