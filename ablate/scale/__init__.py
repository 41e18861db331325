"""What a study costs where it is to be run: memory, time and device-hours by formula. Pure arithmetic, no torch."""
