"""What the page says of each experiment: a file of the experiment's name each, with `section(sources)`."""
