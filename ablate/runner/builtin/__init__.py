"""The worker of the built-in trainer: single runs, cohorts, and runs spread over devices."""
