"""The studio: a page in the browser in which one moves the goal and sees a world model think."""
