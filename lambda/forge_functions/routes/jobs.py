"""The paths of jobs."""

from fastapi import APIRouter

router = APIRouter()
