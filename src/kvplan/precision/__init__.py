"""Number formats: how many bytes a row of elements takes, scales and zero points included."""
