"""Tests, by room and package as the code; helpers under support/."""
