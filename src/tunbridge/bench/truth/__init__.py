"""What is known of a posterior: exact problems, references, and calibration by simulation."""
