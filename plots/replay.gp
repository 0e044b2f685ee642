# Skipped steps against what is flushed, a point for each replayed scaler; bars: both ends of what is known.
# The data: blocks of cost, skips, least, most: the best, the others, the recorded run.
name_of(i) = i <= names ? value(sprintf('name_%d', int(i))) : ''
set key at screen px(width - 24), screen py(60) right top Left reverse noenhanced font small_font \
    textcolor rgb ink samplen 1.5 spacing 1.25
set lmargin at screen px(84)
set rmargin at screen px(width - 200)
set tmargin at screen py(100)
set bmargin at screen py(height - 70)
set label 1 'Loss scalers on the recorded gradients' at screen px(24), screen py(22) noenhanced \
    font title_font textcolor rgb ink
set label 2 detail at screen px(24), screen py(46) noenhanced font small_font textcolor rgb soft
set label 3 cost_name at graph 0.5, screen py(height - 18) center noenhanced font small_font \
    textcolor rgb soft
set label 4 'skipped steps' at screen px(24), screen py(76) font small_font textcolor rgb soft
if (log_cost) { set logscale x 10; set format x '10^{%L}' }
set yrange [0:*]
set offsets graph 0.05, graph 0.15, graph 0.1, 0
plot data index 1 using 1:2:3:4 with yerrorbars linecolor rgb soft pointtype 7 pointsize 0.6 title 'others', \
     data index 0 using 1:2:3:4 with yerrorbars linecolor rgb blue pointtype 7 pointsize 0.9 \
         title 'no other skips and flushes less', \
     data index 0 using 1:2:(name_of($0 + 1)) with labels left offset 0.8, 0.5 noenhanced font small_font \
         textcolor rgb ink notitle, \
     data index 2 using 1:2 with points linecolor rgb vermillion pointtype 4 pointsize 1.4 linewidth 2 \
         title 'recorded'
